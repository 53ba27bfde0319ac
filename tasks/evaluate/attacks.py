"""Attacks on synthetic records by an existing tool, SynthEval, for `internal/` only: a report, and never a gate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.encode.codes import EncodedTable, encode_table
from marginweave.tasks.evaluate.internal import (
    RawBlocks,
    check_source,
    encoded_rows,
    joined_tables,
    published_bounds,
)
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.references import RunReference
from marginweave.tasks.validate.source import TableSource

if TYPE_CHECKING:
    import pandas as pd

# Distances are between all pairs of rows.
_MOST_ROWS = 2000
_FEWEST_ROWS = 8
_ABOUT = (
    "Attacks by SynthEval on the synthetic records, with rows that were in no release for comparison. They show what these "
    "attackers find, and no more: that they find nothing proves nothing. The guarantee is what privacy.json states, and "
    "`marginweave audit` measures the mechanisms. Not for release: it is about the sensitive table"
)


@dataclass(frozen=True, kw_only=True)
class AttackedTables:
    """Codes of the rows that were released, of the synthetic records, and of rows that were not released."""

    released: pd.DataFrame
    synthetic: pd.DataFrame
    others: pd.DataFrame


def attack_internally(reference: RunReference, holdout: Path) -> Path:
    """Attack the published records and write `internal/attacks.json` (0600); returns its path, never a number of it.

    That somebody looked is booked in the ledger first, as of every internal evaluation. DP: none.

    Args:
        reference: A finished run.
        holdout: A file like the source, of rows of the same kind that are not in it.

    Raises:
        InputError: another source than the release was made from, or the same one as holdout, too few rows, or SynthEval is not
            installed.
    """
    _metrics()
    configuration = reference.configuration.with_bounds(published_bounds(reference))
    source = TableSource(reference.source, configuration.source)
    places = (source, TableSource(str(holdout.resolve()), configuration.source))
    check_source(reference, source)
    held_out, manifest = reference.ledger.source_digest(places[1].chunks()), reference.manifest
    if held_out.matches(manifest.release, manifest.source_digest):
        raise InputError("--attacks needs rows that were in no release, and these are the source of the run")
    reference.ledger.record_internal_evaluation(configuration.dataset, reference.manifest.release)
    rows, others = (_encoded_table(place, configuration, reference.folder.internal) for place in places)
    published = pq.read_table(reference.folder.release / "synthetic.parquet")
    made = encode_table(clean_table(published, configuration), configuration)
    report = {"about": _ABOUT, **attack(_frames(configuration, rows, made, others))}
    place = reference.folder.internal / "attacks.json"
    replace_file(place, (json.dumps(report, indent=2) + "\n").encode(), PRIVATE_MODE)
    return place


def attack(tables: AttackedTables) -> dict[str, Any]:
    """Membership inference by a classifier, and how many rows stand nearer to a synthetic record than to another row.

    Raises:
        InputError: too few rows to train and test on, or no column that holds one value a row.
    """
    classifier, identifiability = _metrics()
    least = min(len(tables.released), len(tables.synthetic), len(tables.others))
    if least < _FEWEST_ROWS:
        raise InputError(f"attacks need at least {_FEWEST_ROWS} released, synthetic and other rows each")
    columns = list(tables.released.columns)
    if not columns:
        raise InputError("attacks need a column that is no set of values")
    settings = {"cat_cols": columns, "num_cols": [], "do_preprocessing": False, "verbose": False, "plot_figures": False}
    membership = classifier(tables.released, tables.synthetic, tables.others, **settings).evaluate()
    near = [frame.head(_MOST_ROWS) for frame in (tables.released, tables.synthetic, tables.others)]
    near = [frame.head(min(map(len, near))) for frame in near]
    nearest = identifiability(*near, nn_dist="gower", **settings).evaluate()
    return {
        "membership_inference": {name: float(value) for name, value in membership.items()},
        "nearest_records": {"rows": len(near[0]), **{name: float(value) for name, value in nearest.items()}},
    }


def _metrics() -> tuple[Any, Any]:
    try:
        from syntheval.metrics.privacy.metric_epsilon_identifiability import EpsilonIdentifiability
        from syntheval.metrics.privacy.metric_MIA_classification import MIAClassifier
    except ImportError:
        raise InputError("--attacks needs SynthEval: pip install 'marginweave[attacks]'") from None
    return MIAClassifier, EpsilonIdentifiability


def _encoded_table(source: TableSource, configuration: Configuration, folder: Path) -> EncodedTable:
    with _readable(source):
        raw = RawBlocks(source, configuration, configuration.source_names)
        return joined_tables(encoded_rows(raw, configuration, folder))


@contextmanager
def _readable(source: TableSource) -> Iterator[None]:
    """The source as it was when it was opened."""
    state = source.state()
    yield
    if source.state() != state:
        raise InputError("a table was changed while it was read")


def _frames(configuration: Configuration, *tables: EncodedTable) -> AttackedTables:
    """The tables over the union of their values, in random order; sets of values are left out."""
    import pandas as pd

    together = joined_tables(tables)
    names = [a.name for a, codes in zip(configuration.attributes, together.codes, strict=True) if codes.ndim == 1]
    codes = [values for values in together.codes if values.ndim == 1]
    frame = pd.DataFrame(dict(zip(names, codes, strict=True))).astype(np.int64)
    edges = np.cumsum([table.records for table in tables])[:-1].tolist()
    parts = (frame.iloc[i:j] for i, j in zip([0, *edges], [*edges, len(frame)], strict=True))
    shuffled = [part.sample(frac=1).reset_index(drop=True) for part in parts]
    return AttackedTables(released=shuffled[0], synthetic=shuffled[1], others=shuffled[2])
