"""The internal comparison and attacks: the one stage right of `aggregate` that reads private rows; never for release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Domain
from marginweave.schemas.released.evaluation import BrokenRule
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.checkpoint.codecs import compact_table, in_blocks, plain_table
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.encode.codes import Codes, EncodedTable, code_type, encode_table
from marginweave.tasks.evaluate.metrics import evaluate_internal
from marginweave.tasks.evaluate.rules import add_rules, broken_rules
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.preprocess.rows import prepare_blocks
from marginweave.tasks.references import RunReference
from marginweave.tasks.stage import stage_task
from marginweave.tasks.validate.source import TableSource, source_columns

if TYPE_CHECKING:
    import pandas as pd


@stage_task("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release is fixed before; that somebody looked is booked in the ledger first, and every later release or synthesis
    of the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest = reference.manifest
    configuration = reference.configuration.with_bounds(published_bounds(reference))
    source = TableSource(reference.source, configuration.source)
    state = source.state()
    check_source(reference, source)
    reference.ledger.evaluations.record(configuration.dataset, manifest.release)
    raw = RawBlocks(source, configuration, (*configuration.source_names, *_determined(reference.source, configuration)))
    sensitive = joined_tables(encoded_rows(raw, configuration, reference.folder.internal))
    broken = add_rules([(broken_rules(plain_table(table), configuration), table.num_rows) for table in raw])
    if source.state() != state:
        raise InputError(f"the source was changed while run {manifest.run} was compared with it")
    check_source(reference, source)
    records, broken_made = published_records(reference.folder.release / "synthetic.parquet", configuration)
    names = tuple(attribute.name for attribute in configuration.attributes)
    domain, real, made = _common_domain(sensitive, records, names)
    target = configuration.evaluate.target
    evaluation = evaluate_internal(
        real,
        made,
        domain,
        ordered=configuration.ordered,
        target=None if target is None else names.index(target),
        rules=broken_made,
        sensitive_rules=broken,
    )
    replace_file(reference.folder.internal_evaluation, evaluation.to_json(), PRIVATE_MODE)


def published_bounds(reference: RunReference) -> dict[str, tuple[float, float]]:
    """The released bounds, from the release itself: the checkpoints of a finished run are gone."""
    return PrivacyStatement.from_json((reference.folder.release / "privacy.json").read_bytes()).bounds


def published_records(place: Path, configuration: Configuration) -> tuple[EncodedTable, tuple[BrokenRule, ...]]:
    """The codes of the published records at `place`, which are read block by block, and the rules that they break.

    DP: post-processing.
    """
    encoded, broken = [], []
    with pq.ParquetFile(place) as file:
        blocks = map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(configuration.block_rows)))
        for table in chain(blocks, [file.schema_arrow.empty_table()]):
            encoded.append(encode_table(clean_table(table, configuration), configuration))
            broken.append((broken_rules(table, configuration), table.num_rows))
    return joined_tables(encoded), add_rules(broken)


def _determined(source: str, configuration: Configuration) -> list[str]:
    """The determined columns that the source has: they are not counted, but the rows can be held against their rules."""
    held = source_columns(source, configuration.source)
    rules = configuration.structure.determined if configuration.structure else ()
    return [rule.column for rule in rules if rule.column in held]


def check_source(reference: RunReference, source: TableSource) -> None:
    """Raise InputError unless `source` holds the bytes that the release was made from."""
    manifest = reference.manifest
    if not reference.ledger.keys.source_digest(source.chunks()).matches(manifest.release, manifest.source_digest):
        raise InputError(f"the source is not the one that run {manifest.run} was made from")


@dataclass(frozen=True)
class RawBlocks:
    """The source in blocks; a pass over them can be repeated."""

    source: TableSource
    configuration: Configuration
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        return map(compact_table, in_blocks(self.source.tables(self.columns), self.configuration.block_rows))


def encoded_rows(raw: RawBlocks, configuration: Configuration, folder: Path) -> Iterator[EncodedTable]:
    """All sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized."""
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        tables = (clean_table(table, configuration) for table in raw)
    else:
        tables = (block.table for block in prepare_blocks(raw, configuration, os.urandom(32), folder))
    return (encode_table(table, configuration) for table in tables)


def joined_tables(tables: Iterable[EncodedTable]) -> EncodedTable:
    """One table of all rows, each over its own labels so far, over the union of these; sets as wide as the longest cell."""
    parts = list(tables)
    labels = tuple(_union(found) for found in zip(*(part.labels for part in parts), strict=True))
    codes = []
    for j, union in enumerate(labels):
        some = [_renumbered(part, j, union) for part in parts]
        width = max(values.shape[1] if values.ndim > 1 else 1 for values in some)
        if some[0].ndim > 1:
            gaps = [((0, 0), (0, width - values.shape[1])) for values in some]
            some = [np.pad(v, gap, constant_values=len(union)) for v, gap in zip(some, gaps, strict=True)]
        codes.append(np.concatenate(some))
    return EncodedTable(codes=tuple(codes), labels=labels)


def _union(labels: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The labels where all agree, as in every public domain, or all of them, sorted."""
    found = set(labels)
    return found.pop() if len(found) == 1 else tuple(sorted({text for some in found for text in some}))


def _renumbered(table: EncodedTable, j: int, labels: tuple[str, ...]) -> Codes:
    place = {label: i for i, label in enumerate(labels)}
    numbers = np.array([*(place[label] for label in table.labels[j]), len(labels)], code_type(len(labels)))
    return numbers[table.codes[j]]


def _common_domain(
    sensitive: EncodedTable, synthetic: EncodedTable, names: tuple[str, ...]
) -> tuple[Domain, list[Codes], list[Codes]]:
    """Both tables over the union of their values; they differ only where a domain is private."""
    labels = tuple(_union(both) for both in zip(sensitive.labels, synthetic.labels, strict=True))
    tables = ([_renumbered(table, j, union) for j, union in enumerate(labels)] for table in (sensitive, synthetic))
    real, made = tables
    return Domain(names=names, labels=labels), real, made


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
    held_out, manifest = reference.ledger.keys.source_digest(places[1].chunks()), reference.manifest
    if held_out.matches(manifest.release, manifest.source_digest):
        raise InputError("--attacks needs rows that were in no release, and these are the source of the run")
    reference.ledger.evaluations.record(configuration.dataset, reference.manifest.release)
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
