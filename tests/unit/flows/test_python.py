"""`import marginweave as mw`: names that load when asked for, configurations as in YAML, frames of what exists."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import marginweave as mw
from marginweave.accounting.accounts import Account
from marginweave.base.errors import InputError, UnusableTableError
from marginweave.base.places import FRAME
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.columns import Category
from marginweave.configuration.load import load_configuration, parse_configuration
from marginweave.drafts.tally import Usability
from marginweave.flows import notebook
from marginweave.flows.cli.run import resume
from marginweave.ledger import Ledger
from marginweave.runs import lookup
from marginweave.runs.frames import as_table, frame_types
from marginweave.runs.looks import looks_file
from marginweave.runs.request import read_request, remember, resumed_request
from marginweave.runs.retention import list_runs
from tests.support.column_kinds import KINDS
from tests.support.configurations import raw
from tests.support.finished_runs import finished_home
from tests.support.people_table import people_frame
from tests.support.places import REPOSITORY
from tests.support.releases import reserve_release, small_plan
from tests.support.samples import every

HEAVY = ("numba", "numpy", "pandas", "prefect", "pyarrow", "pydantic", "sqlalchemy", "yaml")
PRIVACY = mw.Privacy(epsilon=1, delta=1e-6)
WORDS = st.text(st.sampled_from("aZé0 :#'\"-{}[],&*!|>%@`~?\\"), max_size=6).map(
    lambda text: f"{text}x".strip()
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and the place of a ledger, neither of which is there yet."""
    monkeypatch.setenv("MARGINWEAVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path / "home"


def test_an_import_loads_nothing_that_takes_long() -> None:
    code = f"import sys, marginweave as mw; dir(mw); assert not {{*{HEAVY}}} & {{*sys.modules}}; mw.errors; mw.__version__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert {*mw.__all__} <= {*dir(mw)}
    assert all(inspect.getdoc(getattr(mw, name)) for name in mw.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Synthesiser'"):
        _ = mw.Synthesiser


@pytest.mark.parametrize(
    "first",
    every(3, ["import marginweave.flows.release", "from marginweave.flows import Synthesizer", ""]),
)
def test_the_flow_is_what_is_imported_by_its_name(first: str) -> None:
    code = f"""
{first}
from marginweave.flows import release
from prefect import Flow
assert isinstance(release, Flow), release
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@st.composite
def configurations(draw: st.DrawFn) -> mw.Configuration:
    """What the builders make of a few columns of all kinds, with texts that YAML would like to read as something else."""
    said = st.fixed_dictionaries({}, optional={"public": WORDS, "label": WORDS})
    numbers = st.lists(st.integers(-99, 99), min_size=3, max_size=5, unique=True).map(sorted)
    low = draw(st.integers(-50, 0))
    columns: dict[str, Any] = {
        "a": mw.category(
            draw(st.lists(WORDS, min_size=2, max_size=4, unique_by=str.casefold)), **draw(said)
        ),
        "no": mw.category(np.array(draw(numbers)), **draw(said)),
        "y: #": mw.number(
            low, low + draw(st.floats(10, 500)), bins=draw(st.integers(2, 9)), **draw(said)
        ),
        "true": mw.number(bins=tuple(draw(numbers)), decimals=0),
        "d": mw.date(
            "2019-01-01",
            "2020-12-31",
            bins=draw(st.sampled_from(["month", "year", "weekday"])),
            **draw(said),
        ),
        "p": mw.category(),
        **{
            name: KINDS[name][0]
            for name in draw(st.sets(st.sampled_from([*KINDS]), max_size=2)) - {"private"}
        },
    }
    unit = draw(
        st.sampled_from(["row", mw.person("id", max_records=4), mw.person("id", join=True)])
    )
    privacy = mw.Privacy(
        epsilon=draw(st.floats(0.1, 5)), delta=draw(st.sampled_from([1e-6, 1e-9])), unit=unit
    )
    more = draw(
        st.fixed_dictionaries({}, optional={"rows": st.integers(10, 10**6), "description": WORDS})
    )
    return mw.Configuration(
        dataset="people", privacy=privacy, columns={**columns, "id": {"type": "identifier"}}, **more
    )


@settings(max_examples=60, deadline=None)
@given(config=configurations())
def test_builders_and_yaml_say_the_same(
    config: mw.Configuration, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Builders → YAML → configuration has the digest of the builders; so has the file that somebody else would write."""
    place = tmp_path_factory.mktemp("yaml")
    config.to_yaml(place / "ours.yaml")
    again = mw.Configuration.from_yaml(place / "ours.yaml")
    assert again.digest == config.digest
    assert again.to_yaml() == mw.Configuration.from_yaml(place / "ours.yaml").to_yaml()
    plain = {**json.loads(json.dumps(config, default=list)), "source": "frame.parquet"}
    (place / "theirs.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    assert load_configuration(place / "theirs.yaml").written_digest == config.digest


def test_a_yaml_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    config = mw.Configuration(raw())
    config.to_yaml(tmp_path / "c.yaml")
    assert (tmp_path / "c.yaml").stat().st_mode & 0o777 == 0o600
    assert (
        load_configuration(tmp_path / "c.yaml").written_digest
        == parse_configuration(raw()).written_digest
    )
    with pytest.raises(
        InputError, match=r"exists already.*delete this one before: pathlib\.Path\("
    ):
        config.to_yaml(tmp_path / "c.yaml")


def test_an_unconfirmed_draft_is_refused_as_its_file_is(home: Path, tmp_path: Path) -> None:
    """In the same words, until everything is confirmed; and somebody has looked."""
    frame = people_frame()
    config = mw.Configuration.draft(frame, "people")
    assert looks_file(home).exists()
    waiting = [*config.unconfirmed]
    assert waiting[:2] == ["privacy", "rows"]
    assert all(f"  {name}" in repr(config) for name in waiting)
    assert config._repr_html_() == f"<pre>{escape(repr(config))}</pre>"
    (tmp_path / "draft.yaml").write_text(config.to_yaml())
    with pytest.raises(InputError) as told:
        load_configuration(tmp_path / "draft.yaml")
    with pytest.raises(InputError) as refused:
        mw.Synthesizer(config)
    assert (
        str(refused.value).partition(" questions")[0] == str(told.value).partition(" questions")[0]
    )
    for place in waiting:
        with pytest.raises(InputError, match="drafted"):
            mw.Synthesizer(config)
        config.confirm(place, "the questionnaire")
    assert not config.unconfirmed
    assert mw.Synthesizer(config).configuration.columns["sex"].public == "the questionnaire"
    assert config["rows"] == 200


def test_a_copy_of_a_draft_is_a_draft() -> None:
    """Also with other keys: the type, and what there is to look at."""
    draft = mw.Configuration.draft(people_frame(), "people")
    changed = draft | {"dataset": "others"}
    assert (type(changed), changed["dataset"], draft["dataset"]) == (
        mw.Configuration,
        "others",
        "people",
    )
    assert draft.copy().unconfirmed == changed.unconfirmed == draft.unconfirmed


def test_what_cannot_be_confirmed_or_drafted(tmp_path: Path) -> None:
    config = mw.Configuration.draft(people_frame(), "people")
    with pytest.raises(InputError, match=r"not a table; make one with Configuration\.draft"):
        mw.Synthesizer(people_frame())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"columns\.sex needs a place where it is published"):
        config.confirm("sex")
    with pytest.raises(
        InputError,
        match=r"town is not waiting to be confirmed; waiting are: privacy, rows, columns\.grade",
    ):
        config.confirm("town", "here")
    with pytest.warns(UserWarning, match=r"the index \(sex\) is left out"):
        assert (
            "sex"
            not in mw.Configuration.draft(people_frame().set_index("sex"), "people")["columns"]
        )
    with pytest.raises(InputError, match="a frame has no name"):
        mw.Configuration.draft(people_frame())
    people_frame().to_csv(tmp_path / "people.csv", index=False)
    assert mw.Configuration.draft(tmp_path / "people.csv")["dataset"] == "people"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: mw.category(5), r"^values \(5\) must be a list"),  # pyright: ignore[reportArgumentType]
        (
            lambda: mw.category(pd.Series(["secret"])),
            "^values and edges must be public, and a Series holds those of a table;",
        ),
        (lambda: mw.category("abc"), r"^values \(abc\) must be a list"),
        (lambda: mw.number(0, 1, bins=-1), r"^bins "),
        (lambda: mw.number(0, 1, bins=2, decimal=1), "^unknown key decimal; did you mean decimals"),
        (lambda: mw.date("2019-01-01", "2018-01-01", bins="month"), "bounds"),
        (
            lambda: mw.Privacy(epsilon=-1, delta=2),
            r"^epsilon \(-1\) must be positive\. Also: delta \(2\)",
        ),
        (lambda: mw.Privacy(epsilon=1, delta=1e-6, unit="x"), "^unit"),
        (lambda: mw.person("p", max_records=-3), r"^max_records \(-3\) must be"),
    ],
)
def test_builders_refuse_what_no_column_or_section_is(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build()


def test_arguments_of_another_type_are_input_errors(tmp_path: Path) -> None:
    """With what to write instead, and without the value."""
    frame, draft = people_frame(), mw.Configuration.draft(people_frame(), "people")
    Ledger.create(tmp_path / "ledger.sqlite")
    five: Any = 5
    asked: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (draft.confirm, ("sex", None)),
        (draft.confirm, (["sex"], "x")),
        (draft.to_yaml, (5,)),
        (mw.Configuration.draft, (frame, 3)),
        (mw.Configuration.from_yaml, (None,)),
        (mw.Release.open, (None,)),
        (mw.Ledger.open, (5,)),
        (mw.Ledger.open().fits, (5,)),
        (mw.Ledger.open().fits, ("visits.yaml",)),
        (partial(mw.Synthesizer(raw()).fit, run=five), (frame,)),
        (partial(mw.Synthesizer, home=five), (raw(),)),
    ]
    for call, arguments in asked:
        with pytest.raises(
            InputError, match=r"^\w+ \((int|str|list|NoneType)\) must be .*; write "
        ):
            call(*arguments)
    with pytest.raises(InputError, match=r"\(http://…\) must be a path"):
        mw.Configuration.draft("http://x")


def test_the_plan_of_a_synthesizer_is_a_table() -> None:
    plan = mw.Synthesizer(raw()).plan()
    assert [*plan.frame.index] == [
        "bound-2",
        "bound-3",
        "level-1",
        "level-2",
        "level-3",
        "count",
    ] or len(plan.frame) > 2
    assert repr(plan).startswith("people: epsilon 1, delta 1e-06")
    shown, html = repr(plan).splitlines(), plan._repr_html_()
    assert len(shown) == 3 + len(plan.frame) + len(plan.notes) + len(plan.good_for)
    assert all(
        line in shown and escape(line) in html
        for line in (plan.ending, *plan.notes, *plan.good_for)
    )
    assert any(note.startswith("Ledger: there is no ledger at ") for note in plan.notes)


def test_a_synthesizer_is_an_estimator() -> None:
    """Of scikit-learn: parameters, clones, and what is not fitted."""
    model = mw.Synthesizer(mw.Configuration(raw()), home="elsewhere")
    copy: Any = clone(model)
    assert copy is not model
    assert (
        copy.get_params()
        == model.get_params()
        == {"config": raw(), "home": "elsewhere", "verbose": True}
    )
    assert copy.configuration.written_digest == model.configuration.written_digest
    assert copy.set_params(config=raw(privacy__epsilon=2.0)) is copy
    assert copy.configuration.privacy.epsilon == 2
    copy.config["dataset"] = "other"  # the mapping as it is now
    assert repr(copy) == "Synthesizer(other, epsilon 2, delta 1e-06: not fitted)"
    with pytest.raises(InputError, match="epsilons is no parameter"):
        copy.set_params(epsilons=1)
    for error in (mw.errors.NotFittedError, ValueError, AttributeError):
        with pytest.raises(error, match="fit must be called"):
            model.sample(1)
    assert not hasattr(model, "release")


WRONG_SAMPLES: list[tuple[dict[str, Any], str]] = [
    (
        {"num_rows": 5},
        r"^sample takes n, seed, where and table, and no num_rows; write sample\(1000",
    ),
    ({"n": 5.5}, r"^n \(5\.5\) must be a whole number in"),
    ({"n": -1}, r"^n \(-1\) must be a whole number in"),
    ({"n": float("nan")}, r"^n \(nan\) must be a whole number in"),
    ({"n": pd.DataFrame({"a": ["secret"]})}, r"^n \(DataFrame\) must be a whole number in"),
    ({"n": 5, "seed": -1}, r"^seed \(-1\) must be a whole number in"),
    ({"n": 5, "where": {}}, "^where has no condition; leave it out"),
    ({"n": 5, "where": 5}, r"^where \(5\) must be conditions by their columns"),
    (
        {"n": 5, "where": {"age": {"from": 0, "to": 18}}},
        "to includes 18, use below to leave it out$",
    ),
    (
        {"n": 5, "where": {"age": {"from": 200}}},
        "^no value of 'age' between its bounds meets the condition",
    ),
    (
        {"n": 5, "where": {"age": {"from": 30, "below": 18}}},
        "^no value of column 'age' meets where; its values: ",
    ),
]


CUT = {
    "aggregates.parquet": "counts",
    "evaluation.json": "evaluation",
    "measurements.parquet": "measurements",
    "privacy.json": "guarantee",
    "synthetic.parquet": "synthetic",
}


class Capsule:
    """A frame of another library, such as Polars."""

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_tables_of_other_libraries_are_taken_as_they_are() -> None:
    table = pa.table({"a": [1, 2], "b": pa.array(["x", None], pa.string_view()), "c": [1.5, None]})
    for given_ in (table, Capsule(table)):
        assert as_table(given_, {"b": "", "a": ""}) == table.select(["b", "a"])
        assert frame_types(given_, ["a", "b", "z"]) == {"a": "int64", "b": "string_view"}
    with pytest.raises(InputError, match="lacks the declared column 'z'"):
        as_table(table, {"z": ""})
    for names in ([0, 1], [None, "b"], [("a", 1), ("a", 2)]):
        frame = pd.DataFrame([["x", "y"]], columns=pd.Index(names))
        for natives in (None, {"0": ""}):
            with pytest.raises(
                InputError,
                match=r"names must be texts; write frame\.columns = frame\.columns\.map\(str\)",
            ):
                as_table(frame, natives)
        assert as_table(frame.set_axis(frame.columns.map(str), axis=1)).num_columns == 2
    for wrong in ([1, 2], pd.Series([1, 2]), pa.array([1, 2]), None):
        with pytest.raises(InputError, match="must be a frame of pandas or Polars"):
            as_table(wrong)


def test_a_copied_release_is_opened(tmp_path: Path) -> None:
    """Without home, ledger or table; of marginals and of k-tuples.

    Of 900 rows each of 6 combinations has some 150, nine times the deviation of the noise: all are released.
    """
    seen = set()
    for place in sorted(finished_home(tmp_path, rows=900).glob("runs/*/release")):
        copy = shutil.copytree(place, tmp_path / f"copy-{place.parent.name}")
        kind = (copy / "measurements.parquet").exists()
        (copy / "model.parquet").unlink(missing_ok=True)
        release = mw.Release.open(copy)
        seen.add(kind)
        assert release.guarantee.epsilon > 0
        assert {"count"} <= {*release.counts.columns}
        assert len(release.synthetic)
        first, second, *_ = release.statement.domain
        wide = release.table(first, second)
        assert wide.index.name == first
        assert {part for _, part in wide.columns} - {"how"} == {
            "count",
            "low",
            "high",
        }  # how: where a rule or a bound answers
        cells = release.query(by=[first, second]).set_index([first, second])
        label, other = cells.index[1]
        assert wide[other, "count"].to_dict()[label] == cells["estimate"].to_dict()[label, other]
        assert "<iframe" in release.report()._repr_html_()
        assert release.statement.run in release._repr_html_()
        assert repr(release).startswith("Release of ")
        if kind:
            assert len(release.measurements)
        else:
            with pytest.raises(InputError, match=r"no readable measurements\.parquet"):
                _ = release.measurements
            with pytest.raises(InputError, match="where needs a fitted mixture"):
                release.sample(5, where={first: label})
        with pytest.raises(InputError, match="n must be given with where"):
            release.sample(where={first: label})
        for wrong, said in WRONG_SAMPLES:
            with pytest.raises(
                InputError,
                match=said if kind or not wrong.get("where") else "where needs a fitted mix",
            ):
                release.sample(**wrong)
        with (
            pytest.warns(UserWarning, match=r"has no model\.parquet: .*copy the whole")
            if kind
            else nullcontext()
        ):
            assert release.sample(5.0, seed=np.int64(3)).equals(release.sample(5, seed=3))  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError, match="one to three columns"):
            release.table()
        for part in (release.evaluation, release.guarantee):
            assert len(repr(part)) < 2500
            assert part._repr_html_() == f"<pre>{escape(repr(part))}</pre>"
        for cut, name in CUT.items():
            content = (copy / cut).read_bytes() if (copy / cut).exists() else b""
            (copy / cut).write_bytes(content[: len(content) // 2])
            with pytest.raises(InputError, match=rf"no readable {cut}; is it the whole folder"):
                getattr(mw.Release(copy), name)
    assert seen == {True, False}
    with pytest.raises(InputError, match="does not exist"):
        mw.Release.open(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match=r"not the folder of a release, which has a file privacy\.json$"
    ):
        mw.Release.open(tmp_path)  # copies lie below it, which may be those of others


def test_the_column_of_persons_needs_no_declaration(tmp_path: Path) -> None:
    """It is read from the frame, as the command line reads it from the table."""
    model = mw.Synthesizer(raw(privacy__unit=mw.person("pid", max_records=2)))
    with pytest.raises(mw.errors.BudgetError, match="no ledger"):
        model.fit(people_frame().assign(pid=range(200)), people_frame()["sex"])  # scikit-learn's y
    with pytest.raises(InputError, match="lacks the declared column 'pid'"):
        model.fit(people_frame())
    assert list_runs(tmp_path / "home") == []  # what was refused before it was begun


def test_two_releases_are_compared_set_by_set(tmp_path: Path) -> None:
    """By what each has of a column and of a pair, with the lines that both runs ended with; by name, folder or as they are."""
    home = finished_home(tmp_path)
    first = mw.Release.open(home / "runs" / "k-tuples" / "release")
    second = home / "runs" / "marginals" / "release"
    frame = mw.compare(first, second)
    verdicts = [first.evaluation.verdict, mw.Release.open(second).evaluation.verdict]
    assert frame.attrs["score"] == [verdict.score for verdict in verdicts]
    assert [
        f"quality of pairs {score} of 100" in line
        for score, line in zip(*frame.attrs.values(), strict=True)
    ] == [True, True]
    for side, verdict in zip(("first", "second"), verdicts, strict=True):
        shown = zip(frame["columns"], frame[side], frame[f"{side}_grade"], strict=True)
        assert {*shown} == {
            (tuple(sorted(row.attributes)), row.error, row.grade) for row in verdict.sets
        }
    with pytest.raises(InputError, match="first and second are the same release"):
        mw.compare(second, second)
    town = shutil.copytree(second, tmp_path / "town") / "privacy.json"
    town.write_text(town.read_text().replace('"dataset": "people"', '"dataset": "town"'))
    with pytest.raises(InputError, match="first is a release of people, and second one of town"):
        mw.compare(first, town.parent)
    with pytest.raises(InputError, match=r"release \(int\) must be Release or str or Path"):
        mw.compare(first, cast("Any", 3))


def test_a_ledger_is_read_as_frames(tmp_path: Path) -> None:
    with pytest.raises(mw.errors.BudgetError, match="there is no ledger"):
        mw.Ledger.open()
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    account = Account(
        dataset="affairs",
        epsilon=Decimal(1),
        delta=Decimal("1e-6"),
        unit="row",
        neighbors="add-remove",
    )
    ledger.accounts.open(account, actor="steward")
    ledger.accounts.open(
        Account(**{**vars(account), "dataset": "people", "epsilon": Decimal(2)}), actor="steward"
    )
    reserve_release(ledger, small_plan())
    opened = mw.Ledger.open(str(tmp_path / "ledger.sqlite"))
    assert opened._repr_html_().startswith(f"<pre>Ledger at {tmp_path}")
    accounts = opened.accounts
    assert [*accounts.index] == ["affairs", "people"]
    spent, left = (accounts[name].to_dict() for name in ("epsilon_spent", "epsilon_left"))
    assert spent["affairs"] > spent["people"] == 0
    assert 0 < left["affairs"] < left["people"]
    assert [*opened.spent("affairs").index] == ["first"]
    assert opened.spent("people").empty
    others = raw(privacy__unit=mw.person("id", max_records=2), columns__id={"type": "identifier"})
    fits = opened.fits(raw(), raw(privacy__epsilon=3.0), others)
    assert [*fits["fits"]] == [True, False, False]
    assert "with privacy.epsilon" in fits["refusal"].iloc[1]
    with pytest.raises(mw.errors.BudgetError, match="town"):
        opened.fits(raw(dataset="town"))


@pytest.mark.parametrize(
    ("read", "meant"),
    [(0, 'del config["columns"][NAME]'), (1, 'config["columns"][NAME]["outside"] = "null"')],
)
def test_a_frame_that_cannot_be_meant_is_told_what_to_do_in_python(read: int, meant: str) -> None:
    frame = people_frame()
    frame["sex"] = ["f"] * read + ["secret"] * (len(frame) - read)
    usability = Usability(parse_configuration(raw()))
    usability.add(as_table(frame.astype("string")))
    with pytest.raises(UnusableTableError) as told:
        usability.check(usability.configuration.written)
    said = told.value.in_python
    assert said.startswith("validate: column 'sex'")
    assert said.endswith(f"where it is meant, write {meant}")
    assert "marginweave check" in str(told.value)
    assert "marginweave" not in said


def test_a_frame_without_rows_is_no_matter_of_its_columns() -> None:
    usability = Usability(parse_configuration(raw()))
    usability.add(as_table(people_frame().astype("string")).slice(0, 0))
    with pytest.raises(UnusableTableError) as told:
        usability.check(usability.configuration.written)
    said = told.value.in_python
    assert (
        said
        == "validate: the table has no rows. Nothing was charged. Give fit a table that has rows"
    )


def test_fit_of_a_file_says_what_to_do_in_python(tmp_path: Path) -> None:
    """As fit of a frame: whoever asked in Python has no --yes."""
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-4"),
        unit="row",
        neighbors="add-remove",
    )
    ledger.accounts.open(account, actor="steward")
    frame = people_frame()
    model = mw.Synthesizer(raw(), verbose=False)
    for sexes, advice in (
        (["secret"] * len(frame), 'write del config["columns"][NAME]'),
        (["f", *["secret"] * (len(frame) - 1)], '["outside"] = "null"'),
        ([], "Give fit a table that has rows"),
    ):
        unusable = frame.iloc[: len(sexes)].assign(sex=sexes)
        unusable.to_csv(tmp_path / "people.csv", index=False)
        with pytest.raises(InputError) as of_file:
            model.fit(tmp_path / "people.csv")
        assert str(of_file.value).endswith(advice)
        assert "--" not in str(of_file.value)
        with pytest.raises(InputError) as of_frame:
            model.fit(unusable)
        assert str(of_frame.value) == str(of_file.value)


FOR_COMMANDS = (
    "forecast/target.py",
    "publish/comparison.py",
    "runs/published.py",
    "ledger/",
    "configuration/question.py",
)
"""Rooms and files whose messages with options only commands show, or that command lines are written by."""


def test_no_message_for_python_has_an_option_alone() -> None:
    """An option is part of a whole command, or what to write in Python or in a file is beside it."""
    alone = []
    library = REPOSITORY / "src" / "marginweave"
    for file in sorted(library.rglob("*.py")):
        place = file.relative_to(library).as_posix()
        if place.startswith((*FOR_COMMANDS, "verify/bundle")):
            continue
        tree = ast.parse(file.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = set[int]()
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts.update(id(part) for part in ast.walk(node) if part is not node)
        for node in ast.walk(tree):
            if id(node) in docstrings | parts or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            text = ast.unparse(node)
            has_option = re.search(r"[^-]--[a-z]", text)
            if has_option and not re.search(
                r"marginweave \w|in Python|written|NEW_NAME|in a file", text
            ):
                alone.append(f"{place}:{node.lineno}: {text}")
    assert alone == []


def test_a_stopped_run_of_a_frame_is_resumed_by_fit(tmp_path: Path) -> None:
    home = finished_home(tmp_path, "k-tuples")
    manifest = next(home.glob("runs/*/manifest.json"))
    told = json.loads(manifest.read_text())
    run, internal = manifest.parent.name, manifest.parent / "internal"
    by_fit = f'call fit again with the same frame and configuration, as in fit(frame, run="{run}")'
    for source, how in (
        (internal / FRAME, by_fit),
        ("/a/a.csv", f"is not finished. Resume it: marginweave resume {run}"),
    ):
        manifest.write_text(json.dumps({**told, "state": "running"}))
        (internal / "request.json").write_text(
            json.dumps({"configuration": "a.yaml", "below": ".", "source": str(source)})
        )
        with pytest.raises(InputError) as refused:
            mw.Release.open(run, home)
        assert str(refused.value).endswith(how)
    (internal / "request.json").write_text(
        json.dumps({"configuration": "a.yaml", "below": ".", "source": str(internal / FRAME)})
    )
    with pytest.raises(InputError) as resumed:
        resume(run, home=home)
    assert str(resumed.value).endswith(by_fit)


def test_a_stopped_fit_finds_its_suites_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of a configuration without a file are relative to where `fit` was called, also for `resume` called elsewhere."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger.sqlite"))
    (tmp_path / "suite.json").write_text(json.dumps({"name": "rows", "expectations": []}))
    config = RunFolder.at(tmp_path, "r").internal / "configuration.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(yaml.safe_dump(raw(expectations={"output": "suite.json"})))
    begun = read_request(config, run="r", source="people.csv", home=tmp_path, below=tmp_path)
    remember(begun)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = resumed_request(tmp_path, "r")
    assert resumed.suites == begun.suites == (None, tmp_path / "suite.json")


def test_the_same_frame_is_known_again_whatever_is_declared_of_it(tmp_path: Path) -> None:
    """By all its columns, also those that nobody declares and nothing can be written of."""
    frame = people_frame().assign(
        odd=pd.Series([object()] * 200, dtype=object), wait=pd.Timedelta("1D")
    )
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    for name in ("people", "town"):
        account = Account(
            dataset=name,
            epsilon=Decimal(9),
            delta=Decimal("1e-4"),
            unit="row",
            neighbors="add-remove",
        )
        ledger.accounts.open(account, actor="steward")
    first = raw(synthesize={"method": "gum"})
    model = mw.Synthesizer(first, verbose=False).fit(frame, run="first")
    columns = first["columns"]
    fewer = {name: columns[name] for name in [*columns][:-1]}
    for number, declared in enumerate((columns, dict(reversed(columns.items())), fewer)):
        other = mw.Synthesizer({**first, "dataset": "town", "columns": declared}, verbose=False)
        with pytest.raises(
            mw.errors.BudgetError, match="this source was released under account people"
        ):
            other.fit(frame.set_index(frame.index + 7), run=f"again-{number}")
    assert model.fit(frame, run="first").release.place.parent.name == "first"
    with pytest.raises(InputError, match="made from other source bytes"):
        model.fit(frame.drop(columns="wait"), run="first")


def test_files_are_named_from_python_as_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code lists, known tables and earlier releases: relative to the working folder, in a YAML file to the file."""
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    account = Account(
        dataset="d", epsilon=Decimal(90), delta=Decimal("1e-3"), unit="row", neighbors="add-remove"
    )
    ledger.accounts.open(account, actor="steward")
    (tmp_path / "codes.csv").write_text("code,title\np,one\nq,two\n")
    (tmp_path / "totals.csv").write_text("a,n\np,30\nq,30\n")
    frame = pd.DataFrame({"a": ["p", "q"] * 30, "b": ["x", "y", "y"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    plain = mw.Configuration(
        dataset="d",
        privacy=mw.Privacy(epsilon=1, delta=1e-6),
        columns={
            "a": mw.category({"file": "codes.csv", "value": "code", "label": "title"}),
            "b": mw.category(["x", "y"]),
        },
        aggregate={"method": "marginals"},
    )
    coded = plain.resolved.columns["a"]
    assert isinstance(coded, Category)
    assert coded.titles == {"p": "one", "q": "two"}
    first = mw.Synthesizer(plain, verbose=False).fit(frame, run="first").release.place
    totals: dict[str, Any] = {"columns": ["a"], "from": "other-source", "public": "the register"}
    named = {"release": str(first.relative_to(tmp_path)), "same_rows": "one file"}
    again = plain | {
        "known": [named, {**totals, "table": {"file": Path("totals.csv"), "count": "n"}}]
    }
    listed = again | {"known": [named, {**totals, "table": [["p", 30], ["q", 30]]}]}
    (tmp_path / "c.yaml").write_text(
        (plain | {"known": [named, {**totals, "table": [["p", "30"], ["q", "30"]]}]}).to_yaml()
    )
    read = mw.Configuration.from_yaml("c.yaml")
    assert (
        again.digest
        == listed.digest
        == read.digest
        == load_configuration(tmp_path / "c.yaml").written_digest
    )
    models = [
        mw.Synthesizer(config, verbose=False)
        for config in (again, again, read, tmp_path / "c.yaml")
    ]
    for number, (model, data) in enumerate(
        zip(models, (frame, "t.csv", frame, tmp_path / "t.csv"), strict=True)
    ):
        if number > 1:
            monkeypatch.chdir(tmp_path / "elsewhere")
        assert any("run first" in line for line in model.plan().notes)
        release = model.fit(data, run=f"again-{number}").release
        assert (release.place / "earlier-1-privacy.json").read_bytes() == (
            first / "privacy.json"
        ).read_bytes()
    (tmp_path / "suites.yaml").write_text(
        (plain | {"expectations": {"input": "suite.json"}}).to_yaml()
    )
    with pytest.raises(InputError, match=re.escape(f"({tmp_path / 'suite.json'}) does not exist")):
        mw.Synthesizer(tmp_path / "suites.yaml", verbose=False).fit(frame)
    monkeypatch.chdir(tmp_path)
    digests = {key: value for key, value in read["known"][0]["release"].items() if key != "folder"}
    with pytest.raises(
        InputError,
        match="digests without the folder of the release; write the folder, as in release: ",
    ):
        mw.Synthesizer(read | {"known": [{**read["known"][0], "release": digests}]}).fit(frame)


def test_a_fit_that_awaits_approval_does_not_say_that_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an account asks for approval, files are in `proposed`, and nothing may be published yet."""
    folder = RunFolder.at(tmp_path, "spring")
    released = notebook._ending(folder, "Already released", "nothing")
    monkeypatch.setattr(lookup, "place_of_files", lambda folder: folder.proposed)
    waiting = notebook._ending(folder, "Released", "epsilon 1 and delta 1e-06")
    assert released == f"Already released, nothing charged: {folder.release}"
    assert waiting.startswith(
        "Awaiting approval, epsilon 1 and delta 1e-06 charged, nothing is published yet: "
    )
    assert "marginweave approve spring" in waiting


def test_the_recipe_for_a_draft_takes_columns_whose_values_stay_private() -> None:
    """The block of docs/python.md as it stands, for a table with a column of too many values for a list."""
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    (block,) = [
        code
        for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if "del draft" in code
    ]
    rows = 40_000  # of 83 towns about 480 each, more than noise hides
    towns = [f"town {i % 83}" for i in range(rows)]
    names: dict[str, Any] = {
        "mw": mw,
        "visits": pd.DataFrame(
            {"age": [i % 90 for i in range(rows)], "town": towns, "sex": ["f", "m"] * (rows // 2)}
        ),
    }
    exec(compile(block, "docs/python.md", "exec"), names)
    assert names["draft"]["columns"]["town"] == {"type": "category", "domain": "private"}
    assert mw.Synthesizer(names["draft"]).plan().frame.reset_index().iloc[0, 0] == "values"
