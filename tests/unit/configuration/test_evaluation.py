"""Settings of the evaluation: what they accept, what they refuse, and which attributes have an order."""

from __future__ import annotations

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from tests.support.configurations import BASE, configuration

COLUMNS = {
    **BASE["columns"],
    "day": {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "weekday"},
    "born": {"type": "date", "bounds": ["1990-01-01", "1999-12-31"], "bins": "year"},
    "signs": {"type": "set", "values": ["a", "b"], "max_values": 2},
    "town": {"type": "category", "domain": "private"},
    "id": {"type": "identifier"},
}


def test_numbers_dates_and_what_is_declared_have_an_order() -> None:
    """sex, region, age, grade, day, born, signs, town: weekdays go round, a category has one where it is declared."""
    assert configuration(columns=COLUMNS).ordered == (2, 5)
    assert configuration(columns=COLUMNS, evaluate={"ordered": ["grade"]}).ordered == (2, 3, 5)


@pytest.mark.parametrize("name", ["signs", "id", "nothing"])
def test_a_target_is_counted_and_has_one_value(name: str) -> None:
    with pytest.raises(InputError, match=r"evaluate\.target .* must be a counted column"):
        configuration(columns=COLUMNS, evaluate={"target": name})


@pytest.mark.parametrize("name", ["signs", "id", "nothing", "town", "age", "day"])
def test_an_order_is_declared_for_categories(name: str) -> None:
    with pytest.raises(InputError, match=r"evaluate\.ordered names .* must be a counted category"):
        configuration(columns=COLUMNS, evaluate={"ordered": ["grade", name]})


def test_an_order_is_declared_once() -> None:
    with pytest.raises(InputError, match=r"evaluate\.ordered names a column twice"):
        configuration(columns=COLUMNS, evaluate={"ordered": ["grade", "grade"]})


def test_settings_survive_the_canonical_form_and_change_nothing_else() -> None:
    """Without them the canonical form has no word of them, so that runs of earlier versions keep their digest."""
    plain, config = configuration(), configuration(evaluate={"target": "sex", "ordered": ["grade"]})
    assert Configuration.from_canonical(config.canonical()) == config
    assert '"evaluate":{"internal":false}' in plain.canonical()
