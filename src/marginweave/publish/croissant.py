"""croissant.json: what a catalogue of data sets reads of a release, in Croissant 1.0 (JSON-LD over schema.org)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from marginweave.base.arrow import cell_type
from marginweave.configuration.release import Configuration
from marginweave.publish.conclusions import citation
from marginweave.publish.synthetic import missing_words
from marginweave.released.statement import PrivacyStatement

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
    "synthetic.csv": ("text/csv", "Synthetic records."),
    "synthetic.parquet": ("application/x-parquet", "Synthetic records."),
    "aggregates.csv": ("text/csv", "Released counts with the noise in them, their intervals, and counts that agree."),
    "aggregates.parquet": ("application/x-parquet", "Released counts, as in aggregates.csv."),
    "measurements.parquet": ("application/x-parquet", "Measured tables as they were drawn."),
    "model.parquet": ("application/x-parquet", "The fitted model that the synthetic records are drawn from."),
    "privacy.json": (
        "application/json",
        "Privacy statement: the guarantee, its mechanisms and assumptions, and what was spent.",
    ),
    "evaluation.json": ("application/json", "How well the synthetic records agree with the released counts."),
    "report.html": ("text/html", "What the release promises and how good it is, for people."),
    "explore.html": ("text/html", "A page to look into the release."),
}
_TYPES = {"bool": "Boolean", "int": "Integer", "uint": "Integer", "double": "Float", "float": "Float", "date": "Date"}
_TYPES |= {"timestamp": "DateTime"}


def croissant(
    configuration: Configuration, statement: PrivacyStatement, schema: pa.Schema, digests: Mapping[str, str]
) -> bytes:
    """The description of a release: its files by `digests`, and the columns of the synthetic records. DP: post-processing.

    Args:
        configuration: what is declared.
        statement: the privacy statement.
        schema: of synthetic.parquet.
        digests: SHA-256 of each file of the release, by name.
    """
    guarantee = statement.guarantee
    promise = (
        f"Differentially private with epsilon {guarantee.epsilon:g} and delta {guarantee.delta:g} for each {guarantee.unit} of "
        "the source; privacy.json has the whole statement. Records are synthetic: none is about anybody."
    )
    counted = configuration.counted_with(statement.bounds_of_lengths)
    bounded = counted and f"Every number counts {counted}."
    uncounted = statement.uncounted and statement.uncounted.words
    undeclared = {one.attribute: one.words for one in statement.undeclared or () if one.found}
    found: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": configuration.label or statement.dataset,
        "description": " ".join(filter(None, (configuration.description, bounded, uncounted, promise))),
        "identifier": f"urn:uuid:{statement.release}",
        "citeAs": citation(configuration, statement),
        **_publication(configuration, statement),
        "usageInfo": {"@type": "sc:CreativeWork", "name": "Privacy statement", "url": "privacy.json"},
        "rai:personalSensitiveInformation": promise,
        "distribution": [_file(name, digest) for name, digest in digests.items() if name in _FILES],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "records",
                "name": "records",
                "field": [_field(configuration, one, undeclared.get(one.name)) for one in schema],
            }
        ],
    }
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()


def _publication(configuration: Configuration, statement: PrivacyStatement) -> dict[str, Any]:
    """Who published it, when and under which license, as far as that is known."""
    said, found = configuration.publish, dict[str, Any]()
    if said.publisher:
        contact = {"contactPoint": {"@type": "sc:ContactPoint", "description": said.contact}} if said.contact else {}
        found["publisher"] = found["creator"] = {"@type": "sc:Organization", "name": said.publisher, **contact}
    known = {"license": said.license, "dateCreated": statement.begun, "datePublished": statement.begun}
    return found | {name: value for name, value in known.items() if value}


def _file(name: str, digest: str) -> dict[str, Any]:
    kind, words = _FILES[name]
    facts = {"@id": name, "name": name, "description": words, "contentUrl": name, "encodingFormat": kind}
    return {"@type": "cr:FileObject", **facts, "sha256": digest}


def _field(configuration: Configuration, field: pa.Field, undeclared: str | None) -> dict[str, Any]:
    column = configuration.columns[field.name]
    kind = re.match("[a-z]+", str(cell_type(field.type)))
    no_value = missing_words(configuration, field.name)
    words = " ".join(filter(None, (column.label and f"{column.label}.", column.description, no_value, undeclared)))
    return {
        "@type": "cr:Field",
        "@id": f"records/{field.name}",
        "name": field.name,
        **({"description": words} if words else {}),
        "dataType": f"sc:{_TYPES.get(kind[0] if kind else '', 'Text')}",
        "source": {"fileObject": {"@id": "synthetic.parquet"}, "extract": {"column": field.name}},
    }
