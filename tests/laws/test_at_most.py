"""Parts that add up to no more than a whole: what that excludes, by trying every record; and that nothing else comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.evaluate.rules import broken_rules
from marginweave.flows.check.table import Inspection
from marginweave.measurements.combinations import Domain
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.prepare.clean import CleanBlocks, clean_table, pack_clean
from marginweave.prepare.codes import EncodedTable, code_type, encode_table
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.repair import Repair
from marginweave.prepare.rows import prepare_blocks
from marginweave.records.decode import decode_table
from tests.support.configurations import configuration
from tests.support.noisy_marginals import synthesized

NUMBER = {"type": "number", "decimals": 1}
SURE = {"missing": [], "outside": "error"}
COLUMNS: dict[str, Any] = {
    "income": {**NUMBER, "bins": [-10, 0, 15, 40, 100]},
    "wage": {**NUMBER, "bins": [0, 10, 30]},
    "sex": {"type": "category", "values": ["f", "m"], **SURE},
    "pension": {**NUMBER, "bins": [-5, 0, 8, 20], **SURE},
    "fees": {**NUMBER, "bins": [-20, 0.3, 12, 50, 60], **SURE},
}
STRUCTURE: dict[str, Any] = {
    "at_most": [{"column": "income", "of": ["wage", "pension"]}, {"column": "income", "of": ["fees", "pension"]}],
    "forbidden": [{"sex": "f", "fees": {"from": 50}}],
}
CONFIGURATION = configuration(columns=COLUMNS, structure=STRUCTURE, aggregate={"method": "marginals"})
NAMES = tuple(COLUMNS)
LABELS = tuple(attribute.labels for attribute in CONFIGURATION.attributes)
SIZES = domain_sizes(CONFIGURATION.attributes, LABELS)
EVERY = np.stack(np.unravel_index(np.arange(np.prod(SIZES)), SIZES), axis=1)
MASKS = structural_masks(CONFIGURATION, LABELS)
LARGEST = [-0.1, 14.9, 39.9, 100.0, np.inf]  # of each code of income, a missing one last
LEAST = {1: [0, 10, 0], 3: [-5, 0, 8], 4: [-20, 0.3, 12, 50]}


def keeps(record: tuple[int, ...]) -> bool:
    """The rules in plain words, by code."""
    income, wage, sex, pension, fees = record
    least = {1: LEAST[1][wage], 3: LEAST[3][pension], 4: LEAST[4][fees]}
    fits = max(least[1] + least[3], least[4] + least[3]) <= LARGEST[income]
    return fits and not (sex == 0 and fees == 3)


def mapped(records: np.ndarray) -> np.ndarray:
    codes = tuple(column.astype(code_type(len(labels))) for column, labels in zip(records.T, LABELS, strict=True))
    words = RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(len(records)))
    return np.stack(Repair(CONFIGURATION, LABELS)(EncodedTable(codes=codes, labels=LABELS), words).codes, axis=1)


def test_exactly_what_cannot_add_up_is_excluded() -> None:
    allowed = np.array([keeps(tuple(record)) for record in EVERY.tolist()])
    assert 0 < allowed.sum() < len(allowed)
    assert np.array_equal(broken_records(tuple(EVERY.T), MASKS), ~allowed)


def test_the_whole_becomes_the_nearest_that_holds_its_parts() -> None:
    found = mapped(EVERY)
    assert all(keeps(tuple(record)) for record in found.tolist())
    assert np.array_equal(mapped(found), found)
    assert np.array_equal(found[:, 1:4], EVERY[:, 1:4])
    broken = (found[:, 0] != EVERY[:, 0]) & (found[:, 4] == EVERY[:, 4])
    assert broken.any()
    for before, after in zip(EVERY[broken].tolist(), found[broken].tolist(), strict=True):
        assert before[0] < after[0]
        assert not any(keeps((income, *before[1:])) for income in range(after[0]))


def check_table(table: pa.Table, codes: tuple[np.ndarray, ...], config: Configuration) -> None:
    """Exact in decimals, and every value in its bin."""
    for row in table.to_pylist():
        tenths = {name: round(10 * (row[name] or 0)) for name in ("income", "wage", "pension", "fees")}
        if row["income"] is not None:
            assert tenths["wage"] + tenths["pension"] <= tenths["income"]
            assert tenths["fees"] + tenths["pension"] <= tenths["income"]
    again = encode_table(clean_table(table, config), config)
    assert all(np.array_equal(one, other) for one, other in zip(again.codes, codes, strict=True))
    assert [rule.records for rule in broken_rules(table, config)][:3] == [0, 0, 0]


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sd=st.sampled_from([0.5, 30.0]),
    method=st.sampled_from(("aggregate-seeded", "gum", "mixture")),
)
def test_no_method_makes_parts_that_are_too_much(seed: int, sd: float, method: str) -> None:
    rng = np.random.default_rng(seed)
    rows = mapped(EVERY[rng.integers(0, len(EVERY), 400)])
    codes, domain = synthesized(rows, CONFIGURATION, method, seed, sd)
    assert all(keeps(record) for record in zip(*(code.tolist() for code in codes), strict=True))
    check_table(decode_table(codes, domain, CONFIGURATION, seed), tuple(codes), CONFIGURATION)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), draw=st.sampled_from(["uniform", "smooth", "midpoint"]))
def test_values_inside_bins_add_up_too(seed: int, draw: str) -> None:
    """Also where there is no room left: the least of every part, the largest whole."""
    columns = {name: {**column, **({"draw": draw} if name != "sex" else {})} for name, column in COLUMNS.items()}
    config = configuration(columns=columns, structure=STRUCTURE, aggregate={"method": "marginals"})
    codes = tuple(np.random.default_rng(seed).permutation(EVERY[~broken_records(tuple(EVERY.T), MASKS)]).T)
    table = decode_table(codes, Domain(names=NAMES, labels=LABELS), config, seed)
    check_table(table, codes, config)
    assert np.array(table.column("income").is_null()).sum() == (codes[0] == 4).sum()


def test_rows_whose_parts_are_too_much_are_told() -> None:
    """A missing part counts as 0, and nothing bounds parts where the whole is missing."""
    rows = {
        "income": ["30", "30", "30", "", "-1", "0.3"],
        "wage": ["10.1", "10", "", "30", "", "0.1"],
        "sex": ["f"] * 6,
        "pension": ["20", "20", "20", "20", "0", "0.2"],
        "fees": ["10", "10", "10.1", "0", "0", "0"],
    }
    found = [rule.records for rule in broken_rules(pa.table(rows), CONFIGURATION) if rule.rule == "at_most"]
    assert found == [2, 2]


def test_check_tells_how_many_rows_rules_drop_together(tmp_path: Path) -> None:
    """As many as a release does, by bins; each rule by itself, under a name of its own. Rows go through in two blocks."""
    config = configuration(
        columns=COLUMNS, structure={**STRUCTURE, "repair": "drop"}, aggregate={"method": "marginals"}
    )
    rng = np.random.default_rng(5)
    cells = {name: rng.integers(-5, 21, 200).astype(str).tolist() for name in config.source_names}
    table = pa.table(cells | {"sex": rng.choice(["f", "m"], 200).tolist()})
    clean = CleanBlocks(list(pack_clean(prepare_blocks([table], config, bytes(32), tmp_path))))
    kept = sum(block.records for block in encode_blocks(clean, config, bytes(32)))
    inspection = Inspection(config, table.column_names)
    for start in (0, 120):
        inspection.add(table.slice(start, 120))
    found = {row.subject: row.findings for row in inspection.rows() if row.findings}
    (dropped,) = found["repair: drop"]
    assert round(dropped.share * 200) == 200 - kept > 20
    alone = {", ".join(rule["of"]) + ", income": rule for rule in STRUCTURE["at_most"]}
    assert {*alone} < {*found}
    assert all("repair: drop" in remark.advice for name in alone for remark in found[name] if "add up" in remark.text)
    assert dropped.share < sum(
        found[name][0].share for name in alone
    )  # of values inside bins that hold the rule none is dropped


@pytest.mark.parametrize(
    ("at_most", "words"),
    [
        ([{"column": "income", "of": ["wage"]}], "structure.at_most, entry 1: of"),
        ([{"column": "income", "of": ["wage", "income"]}], "structure.at_most names 'income' twice"),
        ([{"column": "gone", "of": ["wage", "fees"]}], "names 'gone', which is not among columns"),
        ([{"column": "income", "of": ["sex", "wage"]}], "which must be numbers, without codes"),
        (
            [{"column": "income", "of": ["wage", "fees"]}, {"column": "fees", "of": ["wage", "pension"]}],
            "'fees', which must not be in structure.ordered, nor a part in one entry and the column of another",
        ),
    ],
)
def test_parts_and_wholes_that_do_not_fit_are_refused(at_most: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        configuration(columns=COLUMNS, structure={"at_most": at_most})
    assert words in str(refusal.value)
    with pytest.raises(InputError, match=r"'wage', which must not be in structure\.ordered"):
        configuration(columns=COLUMNS, structure={**STRUCTURE, "ordered": [{"columns": ["wage", "fees"]}]})
    fine = {name: {**NUMBER, "bounds": [0, 100], "bins": 400} for name in COLUMNS}
    with pytest.raises(InputError, match="more than 100000 combinations of bins; use coarser ones"):
        configuration(columns=fine, structure={"at_most": [{"column": "income", "of": ["wage", "fees"]}]})
