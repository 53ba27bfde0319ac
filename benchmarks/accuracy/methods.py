"""The registry: one line a method of ours, one line a peer. A method that the configuration model refuses is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.tables import delta, first_sample, is_known, table
from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration

Settings = Mapping[str, Any]

_MARGINALS = {"method": "marginals"}
_GUM, _MIXTURE = {"method": "gum"}, {"method": "mixture"}
_SEEDED = {"method": "aggregate-seeded"}

# The sections `aggregate` and `synthesize` of a configuration.
OURS: dict[str, Settings] = {
    "independent": {"aggregate": {**_MARGINALS, "cliques": {"all": 1}}, "synthesize": _GUM},
    "marginals-gum": {"aggregate": _MARGINALS, "synthesize": _GUM},
    "tuples-3": {"aggregate": {"method": "k-tuples", "reporting_length": 3}, "synthesize": _SEEDED},
    "tuples-2": {"aggregate": {"method": "k-tuples", "reporting_length": 2}, "synthesize": _SEEDED},
    "tuples-3-gum": {
        "aggregate": {"method": "k-tuples", "reporting_length": 3},
        "synthesize": _GUM,
    },
    "marginals-mixture": {"aggregate": _MARGINALS, "synthesize": _MIXTURE},
    "triples-mixture": {"aggregate": {**_MARGINALS, "cliques": {"all": 3}}, "synthesize": _MIXTURE},
    "tuples-3-mixture": {
        "aggregate": {"method": "k-tuples", "reporting_length": 3},
        "synthesize": _MIXTURE,
    },
    "adaptive-mixture": {
        "aggregate": {**_MARGINALS, "cliques": "adaptive"},
        "synthesize": _MIXTURE,
    },
}
INDEPENDENT, DEFAULT, DPSYN, SUBSAMPLE, ROWS = (
    "independent",
    "default",
    "dpsyn",
    "subsample",
    "rows",
)
UNTOLD = "untold"
"""The default that is not told how many rows a sample has."""
# What other benchmarks have beside them: the settings of DPSyn's papers; and, as yardsticks, a share of the rows themselves.
OTHERS: dict[str, Settings] = {
    DPSYN: {
        "aggregate": {**_MARGINALS, "preset": "paper"},
        "synthesize": {**_GUM, "preset": "paper"},
    },
    SUBSAMPLE: {"share": 0.4},
    ROWS: {"share": 1.0},
    UNTOLD: {},
}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A program in `programs/`, what it runs in (`requirements/`), and what it is asked for beside epsilon and delta."""

    package: str
    program: str
    options: Settings


PEERS: dict[str, Peer] = {
    "pac-synth-3": Peer(
        package="pac-synth", program="pac_synth.py", options={"reporting_length": 3}
    ),
    "pac-synth-2": Peer(
        package="pac-synth", program="pac_synth.py", options={"reporting_length": 2}
    ),
    "dpmm-mst": Peer(package="dpmm", program="dpmm_models.py", options={"model": "MST"}),
    "dpmm-aim": Peer(package="dpmm", program="dpmm_models.py", options={"model": "AIM"}),
    "dpmm-privbayes": Peer(
        package="dpmm", program="dpmm_models.py", options={"model": "PrivBayes"}
    ),
}
METHODS = (*OURS, DEFAULT, *PEERS)


def configuration(cell: Cell, source: str) -> dict[str, Any]:
    """The whole configuration of a cell of ours; the sections of the default are left to the program.

    The default of a sample, which small tables are about, is told its number of rows.
    """
    sections = {
        name: dict(section) for name, section in (OURS | OTHERS).get(cell.method, {}).items()
    }
    made = {
        "dataset": "accuracy",
        "source": source,
        "privacy": {"epsilon": cell.epsilon, "delta": delta(cell.table), "unit": "row"},
        "missing": table(cell.table).missing(),
        "columns": table(cell.table).columns(),
    }
    if cell.method == DEFAULT and "/" in cell.table:
        made["rows"] = len(table(cell.table).rows)
    return (
        made
        | table(cell.table).more()
        | sections
        | {"synthesize": sections.get("synthesize", {}) | {"seed": cell.seed}}
    )


def parsed(method: str, name: str, epsilon: float) -> Configuration:
    """The configuration of a method of ours; of all samples of a table it is that of the first. Raises InputError."""
    return _parsed(method, first_sample(name), epsilon)


@cache
def _parsed(method: str, name: str, epsilon: float) -> Configuration:
    cell = Cell(table=name, epsilon=epsilon, method=method, seed=0)
    return parse_configuration(configuration(cell, "table.csv"))


@cache
def refusal(method: str, name: str, epsilon: float) -> str:
    """What the configuration model has against a method of ours on a table; empty if nothing."""
    try:
        parsed(method, name, epsilon)
    except InputError as error:
        return str(error)
    return ""


@cache
def default_method(name: str, epsilon: float) -> str:
    """The method of the registry that a configuration with neither section is, or `DEFAULT` where it is none of them."""
    usual = _resolved(DEFAULT, name, epsilon)
    same = (
        m for m in OURS if not refusal(m, name, epsilon) and _resolved(m, name, epsilon) == usual
    )
    return next(same, DEFAULT)


def settings(cell: Cell) -> Settings | None:
    """What a figure of the cell was measured under, to be measured again where it changes; None of what is unknown."""
    if not is_known(cell.table):
        return None
    if cell.method in PEERS:
        return PEERS[cell.method].options
    if cell.method in (DEFAULT, UNTOLD):
        return _resolved(cell.method, first_sample(cell.table), cell.epsilon)
    return (OURS | OTHERS).get(cell.method)


@cache
def _resolved(method: str, name: str, epsilon: float) -> Settings:
    return _sections(parsed(method, name, epsilon), len(table(name).rows))


def _sections(made: Configuration, rows: int) -> Settings:
    """Both sections with every default, as JSON has them; without a number of records that a table of `rows` exceeds."""
    aggregate = made.aggregate.model_dump(mode="json")
    if rows >= (aggregate.get("least_records") or 0):
        aggregate.pop(
            "least_records", None
        )  # it decides nothing, and figures are older than the key
    cliques = aggregate.get("cliques")
    if isinstance(cliques, dict):
        for key in ("coarsen", "target", "spread_pairs"):  # figures are older than the keys
            if not cliques.get(key):
                cliques.pop(key, None)
    if "reporting_length" in aggregate:
        aggregate["reporting_length"] = made.reporting_length
    return {
        "aggregate": aggregate,
        "synthesize": made.synthesize.model_dump(mode="json", exclude={"seed"}),
    }
