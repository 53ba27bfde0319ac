"""The internal comparison and attacks: what they compute; never for release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.durable import PRIVATE_MODE, replace_file
from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import compact_table, in_blocks
from marginweave.configuration.release import Configuration
from marginweave.counts.discovery import recode
from marginweave.draws.references import RunReference
from marginweave.evaluate.numbers import NumberTallies
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table, joined_codes
from marginweave.prepare.rows import prepare_blocks
from marginweave.released.evaluation import BrokenRule
from marginweave.released.statement import PrivacyStatement
from marginweave.sources.source import TableSource

if TYPE_CHECKING:
    import pandas as pd


def published_configuration(reference: RunReference) -> Configuration:
    """With the released bounds, from the release itself: the checkpoints of a finished run are gone."""
    statement = PrivacyStatement.from_json((reference.folder.release / "privacy.json").read_bytes())
    resolved = reference.configuration.with_bounds(statement.bounds)
    return resolved.with_undeclared(statement.released_domain.with_undeclared)


def published_records(
    place: Path, configuration: Configuration, numbers: NumberTallies | None = None
) -> tuple[EncodedTable, tuple[BrokenRule, ...]]:
    """The codes of the published records at `place`, which are read block by block, and the rules that they break.

    Their numbers are counted in `numbers`.

    DP: post-processing.
    """
    encoded, broken = [], []
    with pq.ParquetFile(place) as file:
        blocks = map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(configuration.block_rows)))
        for table in chain(blocks, [file.schema_arrow.empty_table()]):
            clean = clean_table(table, configuration)
            if numbers is not None:
                numbers.add(clean)
            encoded.append(encode_table(clean, configuration))
            broken.append((broken_rules(table, configuration), table.num_rows))
    return joined_tables(encoded), add_rules(broken)


def check_source(reference: RunReference, source: TableSource) -> None:
    """Raise InputError unless `source` holds the bytes that the release was made from."""
    if not reference.is_source(source.chunks()):
        raise InputError(f"the source is not the one that run {reference.manifest.run} was made from")


@dataclass(frozen=True)
class RawBlocks:
    """The source in blocks; a pass over them can be repeated."""

    source: TableSource
    configuration: Configuration
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        return map(compact_table, in_blocks(self.source.tables(self.columns), self.configuration.block_rows))


def encoded_rows(
    raw: RawBlocks, configuration: Configuration, folder: Path, numbers: NumberTallies | None = None
) -> Iterator[EncodedTable]:
    """All sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized.

    Their numbers are counted in `numbers`.
    """
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        tables = (clean_table(table, configuration) for table in raw)
    else:
        tables = (block.table for block in prepare_blocks(raw, configuration, os.urandom(32), folder))
    for table in tables:
        if numbers is not None:
            numbers.add(table)
        yield encode_table(table, configuration)


def joined_tables(tables: Iterable[EncodedTable]) -> EncodedTable:
    """One table of all rows, each over its own labels so far, over the union of these; sets as wide as the longest cell."""
    parts = list(tables)
    labels = tuple(_union(found) for found in zip(*(part.labels for part in parts), strict=True))
    recoded = [recode(p, {j: own for j, own in enumerate(labels) if p.labels[j] != own}) for p in parts]
    codes = [joined_codes([part.codes[j] for part in recoded], len(own)) for j, own in enumerate(labels)]
    return EncodedTable(codes=tuple(codes), labels=labels)


def over_one_domain(*tables: EncodedTable) -> list[EncodedTable]:
    """The tables over the union of their values; they differ only where a domain is private."""
    together = joined_tables(tables)
    edges = pairwise([0, *accumulate(table.records for table in tables)])
    parts = (tuple(codes[start:stop] for codes in together.codes) for start, stop in edges)
    return [EncodedTable(codes=part, labels=together.labels) for part in parts]


def _union(labels: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The labels where all agree, as in every public domain, or all of them, sorted."""
    found = set(labels)
    return found.pop() if len(found) == 1 else tuple(sorted({text for some in found for text in some}))


# Distances are between all pairs of rows.
_MOST_ROWS = 2000
_FEWEST_ROWS = 8
_ABOUT = (
    "Attacks by SynthEval on the synthetic records, with rows that were in no release for comparison. They show what these "
    "attackers find, and no more: that they find nothing proves nothing. The guarantee is what privacy.json states, and "
    "`marginweave audit` measures the mechanisms. Not for release: it is about the sensitive table"
)


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
    configuration = published_configuration(reference)
    places = [TableSource.of(place, configuration) for place in (reference.source, str(holdout.resolve()))]
    check_source(reference, places[0])
    if reference.is_source(places[1].chunks()):
        raise InputError("--attacks needs rows that were in no release, and these are the source of the run")
    reference.ledger.evaluations.record(configuration.dataset, reference.manifest.release)
    rows, others = (_encoded_table(place, configuration, reference.folder.internal) for place in places)
    made, _ = published_records(reference.folder.release / "synthetic.parquet", configuration)
    report = {"about": _ABOUT, **attack(*_frames(configuration, rows, made, others))}
    place = reference.folder.internal / "attacks.json"
    replace_file(place, (json.dumps(report, indent=2) + "\n").encode(), PRIVATE_MODE)
    return place


def attack(released: pd.DataFrame, synthetic: pd.DataFrame, others: pd.DataFrame) -> dict[str, Any]:
    """Membership inference by a classifier, and how many rows are nearer to a synthetic record than to another row.

    Args:
        released: Codes of the rows that were released.
        synthetic: Codes of the synthetic records.
        others: Codes of rows that were not released.

    Raises:
        InputError: too few rows to train and test on, or no column that holds one value a row.
    """
    tables, (classifier, identifiability) = (released, synthetic, others), _metrics()
    if min(map(len, tables)) < _FEWEST_ROWS:
        raise InputError(f"attacks need at least {_FEWEST_ROWS} released, synthetic and other rows each")
    columns = list(released.columns)
    if not columns:
        raise InputError("attacks need a column that is no set of values")
    settings = {"cat_cols": columns, "num_cols": [], "do_preprocessing": False, "verbose": False, "plot_figures": False}
    membership = classifier(*tables, **settings).evaluate()
    near = [frame.head(min(_MOST_ROWS, *map(len, tables))) for frame in tables]
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
    with source.unchanged("a table was changed while it was read"):
        raw = RawBlocks(source, configuration, configuration.source_names)
        return joined_tables(encoded_rows(raw, configuration, folder))


def _frames(configuration: Configuration, *tables: EncodedTable) -> list[pd.DataFrame]:
    """The tables over the union of their values, in random order; sets of values are left out."""
    import pandas as pd

    single = [j for j, attribute in enumerate(configuration.attributes) if not attribute.is_set]
    frames = []
    for table in over_one_domain(*tables):
        codes = {configuration.attributes[j].name: table.codes[j].astype(np.int64) for j in single}
        frames.append(pd.DataFrame(codes).sample(frac=1).reset_index(drop=True))
    return frames
