"""More real tables, of which forecasts are judged: those of installed packages and of Airbnb, and some columns of others.

Values are public where there are few; numbers are in bins whose edges do not come from the rows. One table gives one family,
whatever its columns or samples: what a forecast is judged on has no part in its fit.
"""

from __future__ import annotations

import csv
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, cast

import numpy as np

from benchmarks.accuracy.tables import OTHERS, Table, table
from tests.support.places import DATA

Edges = tuple[float, ...]
Spec = Mapping[str, Edges | int | None]
"""Of a column its edges, how many of its commonest values have a code, or nothing: every value has one."""
_MISSING = ("", "nan", "NA", ".")


def even(low: float, high: float, bins: int) -> Edges:
    """Edges of equal bins."""
    return tuple(float(edge) for edge in np.linspace(low, high, bins + 1))


def made(columns: Mapping[str, Sequence[object]], spec: Spec) -> Table:
    """A table of some columns; a number beyond its edges is in the bin beside them, a missing value is an empty text."""
    domain, coded, numbers = dict[str, list[str]](), list[list[str]](), list[str]()
    for name, how in spec.items():
        texts = ["" if str(value) in _MISSING else str(value) for value in columns[name]]
        if isinstance(how, tuple):
            places = np.digitize([float(text or "nan") for text in texts], how[1:-1]).tolist()
            codes = [str(place) if text else "" for place, text in zip(places, texts, strict=True)]
            domain[name] = [str(code) for code in range(len(how) - 1)]
            if "" in codes:
                domain[name].append("")
            else:
                numbers.append(name)
        else:
            common = {value for value, _ in Counter(texts).most_common(how)}
            codes = [text if text in common else "other values" for text in texts]
            domain[name] = sorted(set(codes))
        coded.append(codes)
    rows = [list(row) for row in zip(*coded, strict=True)]
    return Table(header=tuple(spec), rows=rows, domain=domain, numbers=tuple(numbers))


def of_file(lines: Sequence[str], spec: Spec) -> Table:
    """A table of lines of CSV, whose rows may begin with their number."""
    header, *rows = csv.reader(lines)
    cells = [row[len(row) - len(header) :] for row in rows]
    return made(dict(zip(header, zip(*cells, strict=True), strict=True)), spec)


def of_statsmodels(folder: str, name: str, spec: Spec) -> Table:
    """A table that statsmodels has, as data or to test with."""
    place = resources.files("statsmodels").joinpath(*folder.split("/"), name)
    return of_file(place.read_text(encoding="utf-8").splitlines(), spec)


def of_airbnb(name: str, spec: Spec) -> Table:
    """One of Airbnb's tables."""
    if not (DATA / "airbnb").is_dir():
        raise SystemExit("the test tables are not here; MARGINWEAVE_TEST_DATA names their folder")
    return of_file((DATA / "airbnb" / name).read_text(encoding="utf-8").splitlines(), spec)


def some_of(name: str, number: int) -> Table:
    """So many columns of a table, by a public seed, in their order."""
    whole = table(name)
    places = sorted(
        np.random.default_rng([number]).permutation(len(whole.header))[:number].tolist()
    )
    header = tuple(whole.header[place] for place in places)
    return Table(
        header=header,
        rows=[[row[place] for place in places] for row in whole.rows],
        domain={column: whole.domain[column] for column in header},
        numbers=tuple(column for column in whole.numbers if column in header),
    )


def griliches() -> Table:
    """Griliches' (1976) wages of very young men."""
    import pandas as pd

    place = resources.files("statsmodels").joinpath(
        "sandbox", "regression", "tests", "griliches76.dta"
    )
    with place.open("rb") as file:
        frame = cast("Any", pd.read_stata(file))
    few: Spec = dict.fromkeys(
        ("rns", "rns80", "mrt", "mrt80", "smsa", "smsa80", "year", "s", "s80")
    )
    many: Spec = {
        "med": even(0, 20, 10), "iq": even(50, 150, 10), "kww": even(10, 60, 10), "age": even(16, 31, 5),
        "expr": even(0, 12, 6), "tenure": None, "lw": even(4.5, 7.5, 10), "lw80": even(4.5, 8.5, 8),
    }  # fmt: skip
    return made({name: frame[name].tolist() for name in frame.columns}, few | many)


def breast_cancer() -> Table:
    """Diagnostic images of Wisconsin: thirty measures in eight bins each."""
    from sklearn.datasets import load_breast_cancer

    data = cast("Any", load_breast_cancer())
    ends = (
        30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1, 3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03,
        40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21,
    )  # fmt: skip
    spec: Spec = {
        str(name): even(0, end, 8) for name, end in zip(data.feature_names, ends, strict=True)
    }
    columns: dict[str, Sequence[object]] = {
        str(name): data.data[:, i].tolist() for i, name in enumerate(data.feature_names)
    }
    return made(columns | {"target": data.target.tolist()}, {**spec, "target": None})


def digits() -> Table:
    """Handwritten digits: the digit, and the inner 36 pixels in four shades."""
    from sklearn.datasets import load_digits

    data = cast("Any", load_digits())
    columns: dict[str, Sequence[object]] = {
        f"p{i}{j}": data.images[:, i, j].tolist() for i in range(1, 7) for j in range(1, 7)
    }
    spec: Spec = dict.fromkeys(columns, (0.0, 1.0, 8.0, 15.0, 17.0))
    return made(columns | {"digit": data.target.tolist()}, {"digit": None, **spec})


def photograph() -> Table:
    """The pixels of scikit-learn's photograph of a temple: place, color, and the color beside and below."""
    from sklearn.datasets import load_sample_image

    pixels = np.asarray(cast("Any", load_sample_image("china.jpg")), dtype=int)
    height, width, _ = pixels.shape
    rows, places = (grid[:-1, :-1].ravel().tolist() for grid in np.mgrid[0:height, 0:width])
    columns: dict[str, Sequence[object]] = {"row": rows, "column": places}
    for name, part in (
        ("", pixels[:-1, :-1]),
        ("beside_", pixels[:-1, 1:]),
        ("below_", pixels[1:, :-1]),
    ):
        columns |= {
            f"{name}{color}": part[:, :, i].ravel().tolist()
            for i, color in enumerate(("red", "green", "blue"))
        }
    spec: Spec = {name: even(0, 256, 16) for name in columns}
    return made(columns, {**spec, "row": even(0, height, 8), "column": even(0, width, 10)})


def unicode_characters() -> Table:
    """The characters of Unicode 3.2, which Python has: what it knows of each."""
    known = unicodedata.ucd_3_2_0
    characters = [chr(code) for code in range(0x110000)]
    named = [(c, name) for c in characters if (name := known.name(c, ""))]
    found: dict[str, list[object]] = {
        "block": [ord(c) // 4096 for c, _ in named],
        "category": [known.category(c) for c, _ in named],
        "direction": [known.bidirectional(c) for c, _ in named],
        "combining": [known.combining(c) for c, _ in named],
        "width": [known.east_asian_width(c) for c, _ in named],
        "mirrored": [known.mirrored(c) for c, _ in named],
        "decomposition": [known.decomposition(c).split(" ")[0][:1] == "<" for c, _ in named],
        "parts": [len(known.decomposition(c).split()) for c, _ in named],
        "number": [known.numeric(c, -1) >= 0 for c, _ in named],
        "first word": [name.split(" ")[0].split("-")[0] for _, name in named],
        "words": [name.count(" ") + 1 for _, name in named],
        "letters": [len(name) for _, name in named],
        "last digit": [ord(c) % 16 for c, _ in named],
    }
    common: Spec = dict.fromkeys(found)
    return made(
        found,
        {
            **common,
            "combining": 8,
            "first word": 30,
            "words": even(1, 9, 8),
            "letters": even(0, 60, 12),
        },
    )


_PEOPLE = (0.0, 5.0, 18.0, 30.0, 40.0, 50.0, 60.0, 66.0)
_MONEY = (-1.0, 1e-9, 10.0, 30.0, 100.0, 300.0, 1000.0, 4e4)
_VISITS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 80.0)
RANDHIE: Spec = {
    "plan": None, "site": None, "coins": None, "tookphys": None, "year": None, "black": None,
    "income": even(0, 30_000, 15), "xage": _PEOPLE, "female": None, "educdec": even(0, 26, 13), "outpdol": _MONEY,
    "drugdol": _MONEY, "suppdol": _MONEY, "inpdol": _MONEY, "totadm": None, "mentvis": _VISITS, "mdvis": _VISITS,
    "notmdvis": _VISITS, "num": None, "mhi": even(0, 100, 10), "disea": even(0, 60, 12), "physlm": 2, "child": None,
}  # fmt: skip
CATTANEO: Spec = {
    "bweight": even(250, 5750, 11), "mmarried": None, "mhisp": None, "fhisp": None, "foreign": None, "alcohol": None,
    "deadkids": None, "mage": even(10, 50, 8), "medu": None, "fage": even(0, 60, 12), "fedu": None,
    "nprenatal": even(0, 40, 10), "monthslb": (0.0, 1.0, 12.0, 24.0, 36.0, 60.0, 120.0, 300.0), "order": None,
    "msmoke": None, "mrace": None, "frace": None, "prenatal": None, "birthmonth": None, "fbaby": None,
}  # fmt: skip
MEPS: Spec = {
    "offer": None, "ssiratio": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 4.0), "age": even(65, 91, 13), "educyr": None,
    "physician": _VISITS, "nonphysician": _VISITS, "medicaid": None, "private": None, "female": None, "phylim": None,
    "actlim": None, "income": (-1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 400.0), "totchr": None, "insured": None,
    "bh": None,
}  # fmt: skip
SURVEY: Spec = dict.fromkeys(
    (
        "sex",
        "age",
        "nmarried",
        "nchildren",
        "religious",
        "education",
        "occupation",
        "rate_marriage",
        "naffairs",
    )
)
TRAVEL: Spec = {
    "mode": None, "choice": None, "ttme": even(0, 100, 10), "invc": even(0, 180, 9), "invt": even(0, 1500, 10),
    "gc": even(0, 300, 10), "hinc": even(0, 80, 8), "psize": None,
}  # fmt: skip
PIGS: Spec = {
    "Weight": even(10, 120, 11), "Feed": even(0, 240, 8), "Time": None, "Evit": None, "Cu": None, "Litter": None,
}  # fmt: skip
PUPILS: Spec = {
    "locus_of_control": even(-3, 3, 12), "self_concept": even(-3, 3, 12), "motivation": even(-3, 3, 12),
    "read": even(20, 85, 13), "write": even(20, 85, 13), "science": even(20, 85, 13), "prog": None,
}  # fmt: skip
USERS: Spec = {
    "gender": None, "age": (0.0, 18.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 120.0, 3000.0), "signup_method": None,
    "signup_flow": None, "language": None, "affiliate_channel": None, "affiliate_provider": None,
    "first_affiliate_tracked": None, "signup_app": None, "first_device_type": None, "first_browser": 15,
    "country_destination": None,
}  # fmt: skip
SESSIONS: Spec = {
    "action": 30, "action_type": None, "action_detail": 30, "device_type": None,
    "secs_elapsed": (0.0, 1.0, 10.0, 100.0, 1000.0, 1e4, 1e5, 1e6, 1e7),
}  # fmt: skip
_LOADERS: Mapping[str, Callable[[], Table]] = {
    "randhie": partial(of_statsmodels, "datasets/randhie/src", "randhie.csv", RANDHIE),
    "cattaneo": partial(of_statsmodels, "treatment/tests/results", "cataneo2.csv", CATTANEO),
    "meps": partial(
        of_statsmodels, "sandbox/regression/tests", "racd10data_with_transformed.csv", MEPS
    ),
    "fair_pt": partial(of_statsmodels, "datasets/fair", "fair_pt.csv", SURVEY),
    "pigs": partial(of_statsmodels, "regression/tests/results", "dietox.csv", PIGS),
    "pupils": partial(of_statsmodels, "multivariate/tests/results", "mvreg.csv", PUPILS),
    "airbnb_users": partial(of_airbnb, "users.csv", USERS),
    "airbnb_sessions": partial(of_airbnb, "sessions.csv", SESSIONS),
    "griliches": griliches,
    "breast_cancer": breast_cancer,
    "digits": digits,
    "photograph": photograph,
    "unicode": unicode_characters,
}


def travel() -> Table:
    """Greene and Hensher's choices of a mode of travel."""
    from statsmodels.datasets import modechoice

    frame = cast("Any", modechoice.load_pandas().data)
    return made({name: [f"{value:g}" for value in frame[name]] for name in TRAVEL}, TRAVEL)


PARTS: Mapping[str, int] = {
    "adult_cat": 6, "drug_deaths_cat": 8, "ma2019_cat": 6, "affairs": 5, "randhie": 8, "cattaneo": 8, "meps": 6, "digits": 14,
    "photograph": 6, "unicode": 7, "airbnb_users": 6, "breast_cancer": 12,
}  # fmt: skip
"""Of which tables some columns are released alone, and how many."""
ADDED = (*_LOADERS, "travel")
OTHERS |= _LOADERS | {"travel": travel}
OTHERS |= {f"{name}+{number}": partial(some_of, name, number) for name, number in PARTS.items()}
