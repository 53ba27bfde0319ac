"""privacy.json against the ledger: whatever number of it is changed, both verifiers find it, whoever made the digests fit."""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.errors import AuditError
from marginweave.base.formats import COMBINED_DRAWS, LAST_READER
from marginweave.ledger import Ledger, ledger_location
from marginweave.ledger.audit import AuditedLedger, audit_ledger
from marginweave.ledger.keys import LedgerKey, load_key
from marginweave.verify import bundle
from marginweave.verify.bundle import _content_digest, verify
from marginweave.verify.bundle_accounting import Fault
from marginweave.verify.bundle_statement import NOT_IN_ROWS
from marginweave.verify.files import StatementAudit, audit_files
from marginweave.verify.handover import hand_over, verifier
from tests.support.people_table import people, visits
from tests.support.plain_runs import run_plainly

HIDDEN = {"type": "category", "domain": "private"}
TUPLES = {
    "aggregate": {"method": "k-tuples", "reporting_length": 2},
    "synthesize": {"method": "aggregate-seeded"},
}
MARGINALS = {"method": "marginals", "cliques": {"all": 2}}
KINDS: dict[str, dict[str, Any]] = {
    "tuples": {**TUPLES, "columns__region": HIDDEN},
    "values": {"aggregate": MARGINALS, "columns__region": HIDDEN},
    "laplace": {
        "aggregate": {**MARGINALS, "noise": "laplace"},
        "known": [
            {
                "columns": ["sex"],
                "table": [["f", 151], ["m", 149]],
                "others": 0,
                "from": "these-rows",
                "public": "-",
            }
        ],
    },
    "sampled": {
        "aggregate": {**MARGINALS, "noise": "laplace"},
        **{
            f"columns__{name}__impute": {"distribution": "uniform"}
            for name in ("sex", "region", "age", "grade")
        },
        "resize": {"records": 200, "amplify": True},
    },
    "rounds": {
        "aggregate": {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 3}},
        "privacy__neighbors": "replace-one",
    },
    "few-records": {"aggregate": {**MARGINALS, "least_records": 10_000}},
    "linked": {
        "aggregate": MARGINALS,
        "privacy__unit": {"column": "person", "max_records": 1},
        "tables": {
            "stays": {
                "source": "stays.csv",
                "at_most": 2,
                "columns": {"kind": {"type": "category", "values": ["a", "b"]}},
            }
        },
    },
}
# Neither verifier can tell more than an upper bound of merged deviations.
ONE_SIDED = ("marginals.deviation",)
AMOUNTS = frozenset({"mu2", "rho", "delta", "plain_epsilon", "plain_delta"})

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Made:
    """A release that was made, its bundle, and the ledger right after it."""

    home: Path
    run: Path
    bundle: Path
    audited: AuditedLedger
    keys: LedgerKey
    record: ReleaseRecord

    @property
    def statement(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.run / "release" / "privacy.json").read_text())
        return told


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Made]]:
    """Releases of each kind, made once, in homes of their own."""
    found: dict[str, Made] = {}
    with pytest.MonkeyPatch.context() as patch:

        def make(kind: str) -> Made:
            if kind not in found:
                home = tmp_path_factory.mktemp(kind)
                patch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
                found[kind] = _made(home, kind)
            return found[kind]

        yield make


def _made(home: Path, kind: str) -> Made:
    location = ledger_location(os.environ)
    account = Account(
        dataset="people",
        epsilon=Decimal(3),
        delta=Decimal(0 if kind == "laplace" else "1e-5"),
        unit="subject:person" if kind == "linked" else "row",
        neighbors=KINDS[kind].get("privacy__neighbors", "add-remove"),
    )
    Ledger.create(location).accounts.open(account, actor="steward")
    table = visits if kind == "linked" else people
    stays = [f"person-{number % 200},{'ab'[number % 2]}" for number in range(500)]
    (home / "stays.csv").write_text("\n".join(["person,kind", *stays]))
    run = run_plainly(home, table(home, 300, **KINDS[kind]), kind)
    keys = load_key(location, {}, "")
    audited = audit_ledger(location, keys)
    hand_over(home, kind, home / "bundle")
    (record,) = audited.releases.values()
    return Made(
        home=home, run=run, bundle=home / "bundle", audited=audited, keys=keys, record=record
    )


def leaves(content: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every number of a statement with its path; amounts of costs are numbers in texts."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, (*path, name))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from leaves(value, (*path, i))
    elif (isinstance(content, int | float) and not isinstance(content, bool)) or (
        isinstance(content, str) and path and path[-1] in AMOUNTS
    ):
        yield path, content


def named(path: Path_) -> str:
    """The path without numbers of entries: what `NOT_IN_ROWS` names."""
    return ".".join(part for part in path if isinstance(part, str))


def is_unchecked(path: Path_) -> bool:
    name = named(path)
    return any(name == key or name.startswith(f"{key}.") for key in NOT_IN_ROWS)


def changed(statement: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(statement)
    place: Any = other
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return other


def seal_again(row: dict[str, Any], link: dict[str, Any]) -> None:
    """Give a changed row, and its link in the chain, the digest and the hash that fit it."""
    link["content"] = _content_digest(row)
    link["row_hash"] = hashlib.sha256(f"{row['prev_hash']}{link['content']}".encode()).hexdigest()
    row["row_hash"] = link["row_hash"]


def forged(made: Made, statement: dict[str, Any], to: Path) -> Path:
    """The bundle with another privacy.json, whose digest, row, chain and anchor were made to fit."""
    shutil.copytree(made.bundle, to)
    content = json.dumps(statement, indent=2, ensure_ascii=False).encode()
    (to / "privacy.json").write_bytes(content)
    rows = [json.loads(line) for line in (to / "ledger.jsonl").read_text().splitlines()]
    assert rows[-1]["kind"] == "PUBLISHED"
    rows[-1]["body"]["outputs"]["release/privacy.json"] = hashlib.sha256(content).hexdigest()
    chain = [json.loads(line) for line in (to / "chain.jsonl").read_text().splitlines()]
    seal_again(rows[-1], chain[-1])
    for name, lines in (("ledger.jsonl", rows), ("chain.jsonl", chain)):
        (to / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (to / "anchor.json").write_text(
        json.dumps({"seq": chain[-1]["seq"], "hash": chain[-1]["row_hash"]})
    )
    return to


def found_by_both(made: Made, statement: dict[str, Any], place: Path) -> bool:
    try:
        verify(forged(made, statement, place))
    except (Fault, LookupError, TypeError, ValueError, ArithmeticError):
        return found_in_the_ledger(made, statement)
    finally:
        shutil.rmtree(place)
    return False


def found_in_the_ledger(made: Made, statement: dict[str, Any]) -> bool:
    try:
        StatementAudit(made.audited).check(json.dumps(statement).encode(), made.record)
    except AuditError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_every_release_fits_its_rows(
    kind: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Both verifiers pass what the program has made; the bundle's by itself, without marginweave."""
    release = made(kind)
    assert audit_files(release.home, release.audited, release.keys, example=False).runs == 1
    verify(forged(release, release.statement, tmp_path / "bundle"))
    command = [
        sys.executable,
        "-I",
        str(release.bundle / "verify.py"),
        str(release.run / "release"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "its epsilon follows from them" in ended.stdout


def test_the_anchor_protects_every_row(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A row that was changed and sealed again no longer leads to the anchor, whoever the next row belongs to."""
    bundle = made("values").bundle
    texts = {
        name: (bundle / name).read_text().splitlines() for name in ("ledger.jsonl", "chain.jsonl")
    }
    for place in range(len(texts["ledger.jsonl"]) - 1):
        rows, chain = ([json.loads(line) for line in lines] for lines in texts.values())
        rows[place]["actor"] = "somebody else"
        seal_again(rows[place], chain[rows[place]["seq"] - 1])
        to = shutil.copytree(bundle, tmp_path / f"{place}")
        for name, lines in (("ledger.jsonl", rows), ("chain.jsonl", chain)):
            (to / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        with pytest.raises(
            Fault, match=f"chain of hashes is broken at row {rows[place]['seq'] + 1}"
        ):
            verify(to)


@pytest.mark.parametrize("beyond", [1, 2, 100])
def test_a_row_beyond_the_chain_is_named(
    beyond: int, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """A row whose number the chain does not have is refused in words, however large the number is."""
    to = shutil.copytree(made("values").bundle, tmp_path / "bundle")
    rows = [json.loads(line) for line in (to / "ledger.jsonl").read_text().splitlines()]
    number = len((to / "chain.jsonl").read_text().splitlines()) + beyond
    rows[-1]["seq"] = number
    (to / "ledger.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(
        Fault, match=f"row {number} was changed, or is not at its place in the chain"
    ):
        verify(to)


@pytest.mark.parametrize(
    "both", [False, pytest.param(True, marks=pytest.mark.long)], ids=["by turns", "both"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_that_is_changed_is_found(
    kind: str, both: bool, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """One after the other, a hundredth more or a tenth less, or one more or less; but for those that no row determines."""
    release = made(kind)
    statement, checked, missed = release.statement, 0, []
    for place, (path, value) in enumerate(leaves(statement)):
        if not both and any(isinstance(part, int) and part > 3 for part in path):
            continue  # one of many entries alike
        number = Decimal(value) if isinstance(value, str) else value
        others: list[Any] = (
            [number + 1, number - 1] if isinstance(value, int) else [number * type(number)("1.01")]
        )
        others += (
            []
            if isinstance(value, int)
            else [number * type(number)("0.9") if number else type(number)("0.001")]
        )
        others = [
            str(other) if isinstance(value, str) else other for other in others if other != number
        ]
        if (
            kind in ("rounds", "few-records")
            and named(path) in ONE_SIDED
            and statement["marginals"][path[1]]["draw"] in ("rounds", COMBINED_DRAWS)
        ):
            assert isinstance(value, float)
            others = [value / 2]
        for other in others if both else others[place % len(others) :][:1]:
            if is_unchecked(path):
                continue
            missed += (
                []
                if found_by_both(release, changed(statement, path, other), tmp_path / "forged")
                else [(path, other)]
            )
            checked += 1
    assert missed == []
    assert checked > 20


def _other(statement: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    other = copy.deepcopy(statement)
    change(other)
    return other


def _of_another_plan(told: dict[str, Any]) -> None:
    """Level 2 as F1 drew it: multiplier, deviation and sigma of another split, which are those of each other."""
    level = next(row for row in told["mechanisms"] if row["draw"] == "level-2")
    level["noise_multiplier"] /= 2
    level["sigma"] = told["noise"][1]["deviation"] = round(level["sigma"] * 512) / 1024


def _contradicting(told: dict[str, Any]) -> None:
    """Level 2 as the statement of F1 had it: the multiplier that was reserved, and the noise that was drawn."""
    level = next(row for row in told["mechanisms"] if row["draw"] == "level-2")
    level["sigma"] = told["noise"][1]["deviation"] = round(level["sigma"] * 205) / 1024


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "another plan": _of_another_plan,
    "a multiplier and a sigma that contradict each other": _contradicting,
    "a draw is missing": lambda told: told["mechanisms"].pop(1),
    "a draw is told twice": lambda told: told["mechanisms"].append(told["mechanisms"][0]),
    "a draw that was made is told as returned": lambda told: told["mechanisms"][0].update(state="returned"),
    "another mechanism": lambda told: told["mechanisms"][0].update(mechanism="exponential"),
    "a noise that no row explains": lambda told: told["mechanisms"][1].update(sigma=1e6),
    "another program reserved it": lambda told: told["programs"]["reserved"].update(digest="0" * 64),
    "another program drew": lambda told: told["programs"]["drew"].append({"version": "9", "digest": "9" * 64}),
    "no program drew": lambda told: told["programs"].update(drew=[]),
    "another relation": lambda told: told["guarantee"].update(neighbors="replace-one"),
    "another unit": lambda told: told["guarantee"].update(unit="subject of column 'id', all rows joined"),
    "another release": lambda told: told.update(release="another"),
    "another run": lambda told: told.update(run="another"),
    "another dataset": lambda told: told.update(dataset="another"),
    "a correction that is none": lambda told: told.update(supersedes={"run": "a", "release": "b"}),
    "another format": lambda told: told.update(format=2),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_other_lie_is_found(change: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    release = made("tuples")
    assert found_by_both(release, _other(release.statement, CHANGES[change]), tmp_path / "forged")


def test_every_lie_about_the_account_is_found(
    made: Callable[[str], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the whole ledger whatever is changed, or missing; by a bundle, which has no other release, all but the total."""
    release = made("tuples")
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(release.home / "ledger" / "ledger.sqlite"))
    place = release.run / "release" / "account.json"
    whole = place.read_text()
    told = json.loads(whole)
    lies = [
        (path, 2 * value if isinstance(value, int | float) else str(2 * Decimal(value)))
        for path, value in leaves(told)
        if float(value)
    ]
    lies += [
        ((name,), "another")
        for name in ("as_of", "dataset", "unit", "neighbors", "meaning", "weak_delta")
    ]
    assert len(lies) > 9
    try:
        for path, value in lies:
            lie = json.dumps(changed(told, path, value))
            place.write_text(lie)
            with pytest.raises(AuditError, match=r"account\.json"):
                audit_files(release.home, release.audited, release.keys, example=False)
            if path[0] in {"cap", "as_of", "dataset", "unit", "neighbors", "meaning"}:
                bundle = forged(release, release.statement, tmp_path / "bundle")
                (bundle / "account.json").write_text(lie)
                with pytest.raises(Fault, match=r"account\.json"):
                    verify(bundle)
                shutil.rmtree(bundle)
        with pytest.raises(AuditError, match=r"account\.json"):
            hand_over(release.home, release.run.name, tmp_path / "never")
        place.unlink()
        with pytest.raises(AuditError, match=r"account\.json is missing"):
            audit_files(release.home, release.audited, release.keys, example=False)
    finally:
        place.write_text(whole)


@pytest.mark.parametrize("kind", ["tuples", "laplace", "sampled"])
def test_a_bundle_refuses_a_total_below_the_charge_of_its_release(
    kind: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Amounts, their epsilon and the number of releases; larger ones may have releases whose rows are elsewhere."""
    release = made(kind)
    bundle = forged(release, release.statement, tmp_path / "bundle")
    place = bundle / "account.json"
    told = json.loads((release.run / "release" / "account.json").read_text())
    place.write_text(json.dumps(told))
    verify(bundle)
    lies: list[tuple[Path_, Any]] = [(("releases",), 0), (("total", "composition"), "none")]
    for path, value in leaves(told["total"], ("total",)):
        if Decimal(str(value)):
            less = Decimal(str(value)) * Decimal("0.999")
            lies.append((path, float(less) if isinstance(value, float) else str(less)))
    assert len(lies) > 3
    for path, value in lies:
        place.write_text(json.dumps(changed(told, path, value)))
        with pytest.raises(Fault, match=r"account\.json"):
            verify(bundle)
    larger = changed(changed(told, ("releases",), 7), ("total", "epsilon"), 2.9)
    place.write_text(json.dumps(larger))
    verify(bundle)


def test_draws_of_another_plan_than_was_reserved_are_found_in_the_files(
    made: Callable[[str], Made],
) -> None:
    """The reproduction of a run that drew by another plan: files, manifest and digests fit, and `ledger verify` finds it."""
    release = made("tuples")
    place, manifest = release.run / "release" / "privacy.json", release.run / "manifest.json"
    before = place.read_bytes(), manifest.read_text()
    place.write_text(json.dumps(_other(release.statement, _contradicting)))
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    manifest.write_text(before[1].replace(release.record.outputs["release/privacy.json"], digest))
    outputs = {**release.record.outputs, "release/privacy.json": digest}
    record = replace(release.record, outputs=outputs)
    audited = replace(release.audited, releases={record.release: record})
    try:
        with pytest.raises(AuditError, match=r"deviation in privacy\.json is not that of the rows"):
            audit_files(release.home, audited, release.keys, example=False)
    finally:
        place.write_bytes(before[0])
        manifest.write_text(before[1])


def test_a_handover_of_an_older_version_is_refused(
    made: Callable[[str], Made],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the number in its privacy.json, with exit code 2 and one sentence; of this version nothing is said."""
    place = shutil.copytree(made("tuples").bundle, tmp_path / "older")
    monkeypatch.setattr(bundle, "__file__", str(place / "verify.py"))
    assert bundle.main([]) == 0
    told = json.loads((place / "privacy.json").read_text())
    (place / "privacy.json").write_text(json.dumps(told | {"format": 2}))
    capsys.readouterr()
    assert bundle.main([]) == 2
    said = f"this handover was made by an older version; {LAST_READER} is the last that reads it\n"
    assert capsys.readouterr() == ("", said)


def test_the_verifier_is_one_program_of_its_own() -> None:
    """No name stands in it twice, and it imports nothing but Python's library."""
    source = verifier().decode()
    assert "import marginweave" not in source
    assert "from marginweave" not in source
    definitions = [
        line.split("(")[0] for line in source.splitlines() if line.startswith(("def ", "class "))
    ]
    assert len(definitions) == len(set(definitions)) > 20


def test_the_verifier_needs_no_more_than_python_3_9() -> None:
    """Its syntax is that of Python 3.9, and `strict`, which zip takes from 3.10 on, is not used."""
    tree = ast.parse(verifier(), feature_version=(3, 9))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    keywords = {keyword.arg for call in calls for keyword in call.keywords}
    assert "strict" not in keywords
