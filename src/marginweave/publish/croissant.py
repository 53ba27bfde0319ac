"""Writes croissant.json: the description of a release for catalogues of data sets, Croissant 1.0 (JSON-LD, schema.org)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from marginweave.base.arrow import cell_type
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import ColumnBase
from marginweave.configuration.evaluation import CsvSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.publish.conclusions import citation
from marginweave.publish.preparation_words import moment_sentences, value_sentences
from marginweave.publish.synthetic import SYNTHETIC, no_value_sentence, row_files
from marginweave.released.statement import PrivacyStatement
from marginweave.texts.sentences import Sentence, report_sentence

CROISSANT = "croissant.json"
_TERMS = (
    "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath key "
    "md5 parentField path recordSet references regex repeated replace samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "dct": "http://purl.org/dc/terms/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    **{name: f"cr:{name}" for name in _TERMS.split()},
    **{name: {"@id": f"cr:{name}", "@type": "@json"} for name in ("data", "examples")},
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
}
_FILES = {
    "synthetic.csv": ("text/csv", "file.records"),
    "synthetic.parquet": ("application/x-parquet", "file.records"),
    "aggregates.csv": ("text/csv", "file.counts"),
    "aggregates.parquet": ("application/x-parquet", "file.counts-again"),
    "measurements.parquet": ("application/x-parquet", "file.measurements"),
    "linked.csv": ("text/csv", "file.linked"),
    "linked.parquet": ("application/x-parquet", "file.linked"),
    "model.parquet": ("application/x-parquet", "file.model"),
    "privacy.json": ("application/json", "file.privacy"),
    "evaluation.json": ("application/json", "file.evaluation"),
    "report.html": ("text/html", "file.report"),
    "explore.html": ("text/html", "file.explorer"),
}
"""By name of a file, its media type and the key of the text that says what it has."""
_LINKED = "linked.parquet"
_LINKED_FIELDS = {
    "histogram": ("Integer", "histogram"),
    "table": ("Text", "table"),
    "count_of": ("Text", "count-of"),
    "count": ("Float", "count"),
    "deviation": ("Float", "deviation"),
    "low": ("Float", "low"),
    "high": ("Float", "high"),
    "column_1": ("Text", "column"),
    "value_1": ("Text", "value"),
    "column_2": ("Text", "column"),
    "value_2": ("Text", "value"),
}
"""By name of a column of the histograms of linked tables, its type and the key of the text that says what it has."""
_TYPES = {
    "bool": "Boolean",
    "int": "Integer",
    "uint": "Integer",
    "double": "Float",
    "float": "Float",
    "date": "Date",
}
_TYPES |= {"timestamp": "DateTime"}


def croissant(
    configuration: Configuration,
    statement: PrivacyStatement,
    schema: pa.Schema,
    digests: Mapping[str, str],
    rows: Mapping[str, tuple[pa.Schema, Configuration]] = MappingProxyType({}),
) -> bytes:
    """Return the description of a release: its files by `digests`, and the columns of the synthetic records.

    DP: post-processing.

    Args:
        configuration: what is declared, bounds resolved.
        statement: the privacy statement.
        schema: of synthetic.parquet.
        digests: SHA-256 of each file of the release, by name.
        rows: by the name of each linked table with synthetic rows, the schema of their Parquet file, and their configuration.
    """
    subject = configuration.privacy.subject
    key = subject.column if subject is not None and rows else ""
    description: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": configuration.label or statement.dataset,
        "description": _description(configuration, statement),
        "identifier": f"urn:uuid:{statement.release}",
        "citeAs": str(citation(configuration, statement)),
        **_publication(configuration, statement),
        "usageInfo": {
            "@type": "sc:CreativeWork",
            "name": str(report_sentence("dataset.statement")),
            "url": "privacy.json",
        },
        "rai:personalSensitiveInformation": str(_promise(statement)),
        "distribution": [
            _file(name, digest, configuration.publish.csv)
            for name, digest in digests.items()
            if _described(name)
        ],
        "recordSet": [
            _records(configuration, statement, schema, key),
            *(
                _rows(name, of_rows, schema_of_rows, configuration.key_of(name), key)
                for name, (schema_of_rows, of_rows) in rows.items()
            ),
            *_linked_records(statement, digests),
        ],
    }
    text = json.dumps(description, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


def _linked_records(
    statement: PrivacyStatement, digests: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the entry of the histograms of linked tables, with what each kind counts; none where there are no such files."""
    if not statement.linked or _LINKED not in digests:
        return
    sentences = []
    for seen in {(seen.table, seen.count_of): seen for seen in statement.linked}.values():
        key = f"histogram.{seen.count_of}"
        sentences.append(report_sentence(key, table=seen.table, most=seen.most))
    words = [row.words for row in statement.linked_undeclared or () if row.found]
    words += [row.words for row in statement.linked_uncounted or ()]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"linked/{name}",
            "name": name,
            "description": str(report_sentence(f"histogram.{key}")),
            "dataType": f"sc:{kind}",
            "source": {"fileObject": {"@id": _LINKED}, "extract": {"column": name}},
        }
        for name, (kind, key) in _LINKED_FIELDS.items()
    ]
    yield {
        "@type": "cr:RecordSet",
        "@id": "linked",
        "name": "linked",
        "description": _paragraph((*sentences, *words)),
        "field": fields,
    }


def _records(
    configuration: Configuration, statement: PrivacyStatement, schema: pa.Schema, key: str
) -> dict[str, Any]:
    """Return the entry of the synthetic records; `key` is the column of their numbers, empty where they have none."""
    undeclared = {row.attribute: row.words for row in statement.undeclared or () if row.found}
    moments = moment_sentences(configuration, statement)
    fields = [
        _key_field("records", key, SYNTHETIC[0])
        if field.name == key
        else _field(configuration, field, (moments.get(field.name), undeclared.get(field.name)))
        for field in schema
    ]
    keys = {"key": {"@id": f"records/{key}"}} if key else {}
    return {"@type": "cr:RecordSet", "@id": "records", "name": "records", **keys, "field": fields}


def _rows(
    table: str, configuration: Configuration, schema: pa.Schema, by: str, key: str
) -> dict[str, Any]:
    """Return the entry of the synthetic rows of a linked table, whose column `by` has the `key` of a record."""
    file, _ = row_files(table)
    place = f"rows/{table}"
    references = {"references": {"field": {"@id": f"records/{key}"}}}
    fields = [
        {**_key_field(place, by, file), **references}
        if field.name == by
        else _field(configuration, field, (), place, file)
        for field in schema
    ]
    return {"@type": "cr:RecordSet", "@id": place, "name": table, "field": fields}


def _key_field(place: str, name: str, file: str) -> dict[str, Any]:
    """Return the entry of a column with the numbers of records."""
    return {
        "@type": "cr:Field",
        "@id": f"{place}/{name}",
        "name": name,
        "description": str(report_sentence("dataset.key")),
        "dataType": "sc:Integer",
        "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
    }


def _promise(statement: PrivacyStatement) -> Sentence:
    """Return the guarantee, and beside which earlier releases it holds."""
    guarantee = statement.guarantee
    runs = [f"run {release_before.run}" for release_before in statement.earlier or ()]
    facts = {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "unit": guarantee.unit}
    if not runs:
        return report_sentence("dataset.promise", **facts)
    return report_sentence("dataset.promise-beside", **facts, runs=listed(runs))


def _description(configuration: Configuration, statement: PrivacyStatement) -> str:
    """Return the steward's description, what the numbers count, and the guarantee."""
    sentences: list[str | Sentence | None] = [configuration.description]
    counted = configuration.counted_with(statement.bounds_of_lengths)
    if counted:
        of = " of the source" if configuration.tables else ""
        sentences.append(report_sentence("dataset.counted", of=of, counted=counted))
    if statement.uncounted:
        sentences.append(statement.uncounted.words)
    times = configuration.synthesize.times
    if times > 1:
        sentences.append(report_sentence("dataset.times", times=times))
    if configuration.followed_tables:
        sentences.append(report_sentence("dataset.followed", tables=configuration.followed_tables))
    sentences.append(_promise(statement))
    return _paragraph(sentences)


def _paragraph(sentences: Iterable[str | Sentence | None]) -> str:
    """Return those sentences that there are, one after the other."""
    return " ".join(map(str, filter(None, sentences)))


def _publication(configuration: Configuration, statement: PrivacyStatement) -> dict[str, Any]:
    """Return publisher, license and dates of a release, as far as they are known."""
    publish = configuration.publish
    facts = dict[str, Any]()
    if publish.publisher:
        organization: dict[str, Any] = {"@type": "sc:Organization", "name": publish.publisher}
        if publish.contact:
            organization["contactPoint"] = {
                "@type": "sc:ContactPoint",
                "description": publish.contact,
            }
        facts["publisher"] = organization
        facts["creator"] = organization
    if publish.license:
        facts["license"] = publish.license
    if statement.begun:
        facts["dateCreated"] = statement.begun
        facts["datePublished"] = statement.begun
    return facts


def _described(name: str) -> tuple[str, str] | None:
    """Return the media type of a file, and the key of the text that says what it has; None of files for programs alone."""
    if name.startswith("synthetic-"):
        kind, _ = _FILES["synthetic" + Path(name).suffix]
        return kind, "file.rows"
    return _FILES.get(name)


def _file(name: str, digest: str, csv: CsvSettings) -> dict[str, Any]:
    """Return the entry of one file of the release; of a CSV file it says how it is written where that is not the usual way."""
    kind, key = _described(name) or ("", "")
    description = str(report_sentence(key))
    if kind == "text/csv" and csv.delimiter != "comma":
        description += f" {report_sentence('file.delimiter', delimiter=csv.delimiter)}"
    if kind == "text/csv" and csv.decimal == "comma":
        description += f" {report_sentence('file.decimal')}"
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": description,
        "contentUrl": name,
        "encodingFormat": kind,
        "sha256": digest,
    }


def _field(
    configuration: Configuration,
    field: pa.Field,
    released: Iterable[str | Sentence | None],
    place: str = "records",
    file: str = SYNTHETIC[0],
) -> dict[str, Any]:
    """Return the entry of one column of the synthetic records; `released` is what the release says of it."""
    column = configuration.columns[field.name]
    label = report_sentence("dataset.column", label=column.label) if column.label else None
    no_value = no_value_sentence(configuration, field.name)
    description = _paragraph(
        (
            label,
            column.description,
            _unit_sentence(column),
            _codes_sentence(column),
            no_value,
            *value_sentences(configuration, field.name),
            *released,
        )
    )
    kind = re.match("[a-z]+", str(cell_type(field.type)))
    type_name = _TYPES.get(kind[0] if kind else "", "Text")
    return {
        "@type": "cr:Field",
        "@id": f"{place}/{field.name}",
        "name": field.name,
        **({"description": description} if description else {}),
        "dataType": f"sc:{type_name}",
        "source": {"fileObject": {"@id": file}, "extract": {"column": field.name}},
    }


def _unit_sentence(column: ColumnBase) -> Sentence | None:
    """Return a sentence on the unit that cells of the table have, which records leave out; None without one."""
    if not isinstance(column, NumberColumn) or column.text is None or column.text.unit is None:
        return None
    return report_sentence("dataset.unit", unit=column.text.unit)


def _codes_sentence(column: ColumnBase) -> Sentence | None:
    """Return a sentence on the numbers of a column that are codes, as records have them, and what each means; None for none.

    Whoever averages the column has to leave them out.
    """
    if not isinstance(column, NumberColumn) or not column.codes:
        return None
    codes = []
    for code, meaning in column.codes.items():
        codes.append(str(report_sentence("codes.code", code=code, label=meaning)))
    return report_sentence("codes.of-column", codes=", ".join(codes))
