"""Families of small tables, made at random: a root, its children and grandchildren, as people write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Rows = list[list[str]]
NAMES: tuple[tuple[str, str, str], ...] = (
    ("patient", "patient", "patient"),
    ("patient_id", "patient_id", "patient"),
    ("id", "patient_id", "id"),
    ("patient", "patient_id", "id"),
    ("PatientID", "patientid", "row"),
    ("patientId", "patient_id", "patient key"),
    ("patient no", "patient", "nr"),
    ("ID", "Patient ID", "number"),
)
"""The name of the key in the root, and that of the ids in its children; the last is one more column of children."""
OTHER_IDS = ("nobody", "n-7")
UNITS = 60


@dataclass(frozen=True, kw_only=True)
class Family:
    """Texts of files by the names of tables, the links to be found, and the exact counts that no draft has."""

    files: Mapping[str, str]
    key: str
    children: Mapping[str, str]
    """By children the column with the ids of the root."""
    below: Sequence[str]
    """Tables that belong to a child alone."""
    orphans: Mapping[str, int]
    without_id: Mapping[str, int]

    def written(self, folder: Path, order: Sequence[str]) -> list[Path]:
        """The files in a folder, in this order of their tables."""
        places = []
        for name in order:
            place = folder / f"{name}.csv"
            place.write_text(self.files[name], encoding="utf-8")
            places.append(place)
        return places


def _category(chance: random.Random) -> Callable[[], str]:
    values = chance.sample(
        ["a", "b c", "1", "02", "ä", "x;y", "other", "k9", "no"], chance.randint(2, 7)
    )
    return lambda: chance.choice(values)


def _boolean(chance: random.Random) -> Callable[[], str]:
    values = chance.choice([("yes", "no"), ("true", "false"), ("T", "F")])
    return lambda: chance.choice(values)


def _number(chance: random.Random) -> Callable[[], str]:
    form = chance.choice(["{:.0f}", "{:.2f}", "{:.0f} %", "{:.1f}"])
    most = chance.choice([30, 400, 5e4])
    return lambda: form.format(chance.uniform(0, most))


def _date(chance: random.Random) -> Callable[[], str]:
    form = chance.choice(["2024-{0:02}-{1:02}", "{1:02}.{0:02}.2024", "2024-{0:02}-{1:02}T08:30"])
    return lambda: form.format(chance.randint(1, 12), chance.randint(1, 28))


def _text(chance: random.Random) -> Callable[[], str]:
    return lambda: f"was seen by doctor {chance.randint(1, 99)}, and came back some time later"


def _constant(chance: random.Random) -> Callable[[], str]:
    return lambda: "here"


KINDS = (_category, _boolean, _number, _date, _text, _constant)
TITLES: tuple[str, ...] = (
    "kind",
    "days",
    "date",
    "seen at",
    "stays",
    "sex",
    "visits",
    "cost_eur",
    "1st",
    "Größe",
    "note",
)


def _cells(chance: random.Random, rows: int) -> tuple[list[str], Rows]:
    """Some columns of any kind, with gaps in some of them: their names and cells."""
    names = chance.sample(TITLES, chance.randint(1, 5))
    columns = []
    for _ in names:
        value = chance.choice(KINDS)(chance)
        gaps = chance.choice([0.0, 0.0, 0.1])
        columns.append(["" if chance.random() < gaps else value() for _ in range(rows)])
    return names, [list(row) for row in zip(*columns, strict=True)]


def _table(chance: random.Random, ids: Mapping[str, list[str]], separator: str) -> str:
    """The text of a table with these columns of ids and others, its columns and rows in an order of chance."""
    rows = len(next(iter(ids.values())))
    names, cells = _cells(chance, rows)
    taken = {name.lower() for name in ids}
    kept = [number for number, name in enumerate(names) if name.lower() not in taken]
    header = [*ids, *(names[number] for number in kept)]
    body = [
        [*row_ids, *(row[number] for number in kept)]
        for row_ids, row in zip(zip(*ids.values(), strict=True), cells, strict=True)
    ]
    order = chance.sample(range(len(header)), len(header))
    chance.shuffle(body)
    quote = '"{}"'.format
    return "".join(
        separator.join(quote(row[place]) for place in order) + "\n" for row in [header, *body]
    )


def family(seed: int) -> Family:
    """A family by chance: one or two children, one of them perhaps with a row each, and perhaps a grandchild."""
    chance = random.Random(seed)
    key, by, extra = chance.choice(NAMES)
    separator = chance.choice(",;\t")
    ids = [f"p{number:03}" for number in chance.sample(range(999), UNITS)]
    files = {"patients": _table(chance, {key: ids}, separator)}
    orphans: dict[str, int] = {}
    without_id: dict[str, int] = {}
    stay_ids: list[str] = []
    owners: list[str] = []
    for name in ("stays", "labs")[: chance.randint(1, 2)]:
        is_one_to_one = chance.random() < 0.2
        owners = (
            chance.sample(ids, UNITS // 2) if is_one_to_one else chance.choices(ids, k=3 * UNITS)
        )
        orphans[name] = chance.choice([0, 0, 7, 11])
        without_id[name] = chance.choice([0, 0, 5])
        owners += [*(OTHER_IDS * 6)[: orphans[name]], *[""] * without_id[name]]
        stay_ids = [f"s{number}" for number in chance.sample(range(9999), len(owners))]
        columns = {by: owners, f"{name}_id": stay_ids}
        if extra.lower() not in {by.lower(), key.lower()}:
            columns[extra] = [str(number) for number in range(len(owners))]
        files[name] = _table(chance, columns, separator)
    children = {name: by for name in files if name != "patients"}
    below = []
    last = next(reversed(files))
    if chance.random() < 0.5:
        rows = [chance.randrange(len(owners)) for _ in range(5 * UNITS)]
        columns = {f"{last}_id": [stay_ids[row] for row in rows]}
        if chance.random() < 0.5:
            columns[by] = [owners[row] for row in rows]
            orphans["codes"] = sum(owner in OTHER_IDS for owner in columns[by])
            without_id["codes"] = columns[by].count("")
            children["codes"] = by
        else:
            below.append("codes")
        files["codes"] = _table(chance, columns, separator)
    return Family(
        files=files, key=key, children=children, below=below, orphans=orphans, without_id=without_id
    )
