"""Small configurations for tests; domains of unequal size, but for `FAIR`, which is a file of one column."""

from __future__ import annotations

import copy
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration

BASE: dict[str, Any] = {
    "dataset": "people",
    "source": "people.csv",
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
    "missing": [""],
    "columns": {
        "sex": {"type": "category", "values": ["f", "m"]},
        "region": {"type": "category", "values": ["north", "south", "west"]},
        "age": {
            "type": "number",
            "bounds": [0, 100],
            "bins": [0, 18, 30, 50, 65, 100],
            "decimals": 0,
        },
        "grade": {"type": "category", "values": [1, 2, 3, 4, 5, 6, 7]},
    },
    "aggregate": {"method": "k-tuples"},  # most tests are about these, whatever `auto` has
}
PRIVATE = {"type": "category", "domain": "private"}
FAIR = """
dataset: fair
source: example:affairs
privacy: {{epsilon: {epsilon}, delta: 1e-6, unit: row}}
columns: {{religious: {{type: category, values: ["1.0", "2.0", "3.0", "4.0"], public: "the questionnaire"}}}}
{execution}
"""


def raw(**changes: Any) -> dict[str, Any]:
    """The base configuration as a mapping; a change is a dotted path with `__` for the dot, and None removes the key."""
    configuration = copy.deepcopy(BASE)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = configuration
        for key in above:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(last, None)
        else:
            # a later change may go below it, and tests share their values
            place[last] = copy.deepcopy(value)
    return configuration


def quick(configuration: dict[str, Any]) -> dict[str, Any]:
    """With a mixture that is fitted in no time, where no method is named and `auto` would take a mixture."""
    given = configuration.get("synthesize", {})
    try:
        usual = parse_configuration(configuration).synthesize.method
    except InputError:
        return configuration  # its refusal is what the test is about
    if "method" in given or usual != "mixture":
        return configuration
    little = {"method": "mixture", "components": 10, "fits": 2, "iterations": 20}
    return {**configuration, "synthesize": little | given}


def configuration(**changes: Any) -> Configuration:
    """The base configuration with changes."""
    return parse_configuration(raw(**changes))


def letters(rows: list[list[str]], names: list[str], **changes: Any) -> Configuration:
    """A configuration whose columns are the named ones and whose domains are the non-empty values of `rows`."""
    domains = [sorted({row[j] for row in rows} - {""}) for j in range(len(names))]
    columns = {
        name: {"type": "category", "values": values}
        for name, values in zip(names, domains, strict=True)
    }
    return configuration(columns=columns, **changes)
