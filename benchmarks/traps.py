"""Measure the traps whose outcome is chance, and write docs/traps.md: python -m benchmarks.traps [--releases 30].

Each is so many releases with fresh noise, of the default methods; ten minutes of CPU in all.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.support.places import REPOSITORY
from tests.support.traps import COSTS, STRONG_PAIR, UNKNOWN_SIZE, Trap, released

PAGE = REPOSITORY / "docs" / "traps.md"
CHANCE: Mapping[str, Trap] = {
    "mean cost, alone": COSTS[0],
    "mean cost beside one column": COSTS[1],
    "mean cost beside three columns": COSTS[3],
    "the survey's strong pair": STRONG_PAIR,
    "the same without `rows`": UNKNOWN_SIZE,
}
TESTS = {
    "decimal commas": (
        "`init` recognises them and the release is right; without that `check` and a person's `run` stop",
        (
            "test_files.py::test_a_draft_of_any_form_is_released_right",
            "test_check.py::test_a_lost_table_is_found",
        ),
    ),
    "a wrong code list": (
        "`check` and a person's `run` stop; an unattended run is doubted by its noisy counts",
        (
            "test_check.py::test_a_run_of_a_lost_table_stops_before_anything_is_charged",
            "test_verdict.py::test_a_column_that_nobody_read_is_doubted_where_nobody_watches",
        ),
    ),
    "patients' ids under `unit: row`": (
        "`init` proposes the patient as the unit and asks; `check` says it",
        (
            "test_traps.py::test_rows_of_patients_are_not_protected_one_by_one",
            "test_check.py::test_ids_that_repeat",
        ),
    ),
    "a lognormal cost": (
        "`init` drafts log bins; the mean is kept as below, the median within one bin",
        (
            "test_traps.py::test_costs_a_top_code_and_columns_without_gaps",
            "test_number_bins.py::test_log_bins_keep_mean_and_median",
        ),
    ),
    "a header without rows": (
        "`check` and a person's `run` stop",
        ("test_check.py::test_a_run_of_a_lost_table_stops_before_anything_is_charged",),
    ),
    "semicolons": (
        "`init` recognises them; elsewhere refused with what to write",
        (
            "test_files.py::test_a_draft_of_any_form_is_released_right",
            "test_files.py::test_a_file_in_another_form_is_refused_with_what_it_likely_is",
        ),
    ),
    "UTF-16": (
        "the same",
        (
            "test_files.py::test_a_draft_of_any_form_is_released_right",
            "test_files.py::test_a_file_in_another_form_is_refused_with_what_it_likely_is",
        ),
    ),
    "69 rows": (
        "not for publication; `publish` asks for `--even-so`",
        ("test_verdict.py::test_a_table_of_69_rows_is_not_for_publication",),
    ),
    "944 rows with one strong pair": (
        "few pairs are measured, each well; Cramér's V is kept as below",
        ("test_traps.py::test_one_strong_pair_of_a_small_survey_is_kept",),
    ),
    "columns without gaps": (
        "no cell is empty, whatever the noise",
        ("test_traps.py::test_costs_a_top_code_and_columns_without_gaps",),
    ),
    "a top code": (
        "a separate value, beside the bins",
        ("test_traps.py::test_costs_a_top_code_and_columns_without_gaps",),
    ),
    "a code list of 264 industries": (
        "given as a file",
        ("test_files.py::test_a_code_list_of_264_industries_is_given_as_a_file",),
    ),
}
HEAD = """# Traps

For stewards: on which tables can a release look fine and be wrong, and what do you see if you follow `init`, `check`, `run` and
`publish`? Written by `python -m benchmarks.traps`.

| trap | what you see | tests |
| --- | --- | --- |
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.traps", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--releases", type=int, default=30, help="of each trap; 30")
    number: int = parser.parse_args().releases
    found = {}
    for name, trap in CHANCE.items():
        found[name] = measured(trap, number)
        print(name, row(name, found[name]), flush=True)  # noqa: T201 - a benchmark prints
    PAGE.write_text(page(found), encoding="utf-8")


def measured(trap: Trap, number: int) -> list[tuple[float, int]]:
    """What is measured of each release, and how many of its cells are empty."""
    found = []
    for _ in range(number):
        with tempfile.TemporaryDirectory() as home:
            found.append(released(trap, Path(home)))
    return found


def row(name: str, found: Sequence[tuple[float, int]]) -> str:
    """A line of the table of what is chance."""
    values = np.array([value for value, _ in found])
    if name.startswith("mean"):
        asked, off = "within 10 %", np.abs(values)
        reached = f"{100 * np.median(off):.1f} % off, at most {100 * off.max():.0f} %"
        good = int((off <= 0.1).sum())
    else:
        asked = "at least 70 % of Cramér's V"
        reached = f"{100 * np.median(values):.0f} %, at least {100 * values.min():.0f} %"
        good = int((values >= 0.7).sum())
    return f"| {name} | {asked} | {reached} | {good} of {len(found)} |"


def page(found: Mapping[str, Sequence[tuple[float, int]]]) -> str:
    """The whole page."""
    lines = []
    for name, (seen, tests) in TESTS.items():
        links = ", ".join(f"`tests/system/{test}`" for test in tests)
        lines.append(f"| {name} | {seen} | {links} |")
    every = [one for some in found.values() for one in some]
    gaps = sum(number for _, number in every)
    chance = "\n".join(row(name, some) for name, some in found.items())
    return f"""{HEAD}{chr(10).join(lines)}

## What is chance

Releases with fresh noise, by the default methods, at epsilon 1, delta 1e-6: lognormal costs (mean 3,900, median 1,130, 12,000
rows, `bins: {{log: 12}}`, bounds [0, 400000]), and 944 voters in ten columns (statsmodels' anes96, `rows: 1000`), party by
vote.

| what | asked for | median, and the worst | as asked |
| --- | --- | --- | --- |
{chance}

In these {len(every)} releases, of tables in which nothing is missing, {gaps} cells are empty.

Without `rows` noise is shared among all triples, and the verdict says: not for pairs of columns. `init` drafts `rows`, to be
kept where the size of the table is published.

The error of the mean is noise on the last bins, where a cost weighs most: beside three columns 8 of 12,000 records, with sd
12, are a twentieth of all costs. Fewer columns or wider log bins lessen it. So does a larger `one_way_share`, but with 0.5 in
place of 0.3 pairs are a tenth farther from the table.
"""


if __name__ == "__main__":
    main()
