"""What leaves the ledger for readers outside: all of its rows, nothing private, and records in the registry's shape."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from marginweave.ledger.audit import AuditedLedger, audit_ledger
from marginweave.ledger.export import comma_separated, json_lines, registry_record
from marginweave.ledger.keys import key_file, load_key
from marginweave.ledger.tables import GENESIS, row_hash
from tests.support.databases import on_both

pytestmark = on_both

# The fields that the registry's schema (opendp/deployments-registry-data at 057e5d8) has at each place; * are required.
SCHEMA = {
    "": {"url_slug*", "deployment*"},
    "deployment": {
        *(
            "basic*",
            "dp_variant",
            "privacy_loss",
            "deployment_model",
            "implementation",
            "administrative*",
        ),
    },
    "deployment.basic": {
        *(
            "name*",
            "data_curators*",
            "description*",
            "intended_use*",
            "data_product_type*",
            "data_product_region*",
        ),
        *("data_product_sector", "publication_date*"),
    },
    "deployment.dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "deployment.privacy_loss": {
        *("privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters"),
        "privacy_parameters_details",
    },
    "deployment.privacy_loss.privacy_parameters": {"epsilon", "delta", "rho"},
    "deployment.deployment_model": {
        *(
            "model_name",
            "model_name_details",
            "trust_assumptions",
            "actors",
            "release_type",
            "release_type_details",
        ),
        *("data_source_type", "data_source_type_details", "access_type", "access_type_details"),
    },
    "deployment.implementation": {
        *(
            "preprocessing_and_hyperparameter_tuning",
            "mechanisms",
            "composition",
            "post_processing",
            "justification",
        ),
        *("utility", "additional_information"),
    },
    "deployment.administrative": {"evidence_sources", "status*", "registry_authors*", "tier*"},
}
CHOICES = {
    "data_product_type": "Synthetic data",
    "variant_name": "Approximate DP",
    "model_name": "Central",
    "release_type": "One release",
    "data_source_type": "Static",
    "access_type": "Non-interactive",
    "status": "Draft",
    "tier": 3,
}


@pytest.fixture
def audited(ledger, reserve, location) -> AuditedLedger:
    """One published release with a lost draw, and one that is only reserved."""
    reserve(run="spring")
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    ledger.draws.lose("first", "count", "lease")
    ledger.draws.begin("first", "level-1", "lease")
    ledger.draws.commit("first", "level-1", "lease", "ab" * 32, tainted=False)
    ledger.draws.return_unused("first", ["level-2"])
    ledger.releases.publish("first", "lease", {"release/a.csv": "cd" * 32})
    ledger.accounts.change_cap("affairs", 3.0, 1e-6, 'a "quoted", reason\nof two lines', "steward")
    reserve("second")
    return audit_ledger(location, load_key(location, {}, ""))


def _objects(node: object, place: str = "") -> dict[str, dict]:
    if not isinstance(node, dict):
        return {}
    found = {place: node}
    for name, child in node.items():
        found |= _objects(child, f"{place}.{name}" if place else name)
    return found


def test_a_record_has_the_shape_of_the_registry(audited) -> None:
    """Required fields are there, no field is unknown, enumerated ones hold values of the schema."""
    objects = _objects(
        registry_record(audited.releases["first"], ["The generator is unpredictable."], "0.1.0")
    )
    assert set(objects) == set(SCHEMA)
    for place, node in objects.items():
        assert {name.rstrip("*") for name in SCHEMA[place] if name.endswith("*")} <= set(node)
        assert set(node) <= {name.rstrip("*") for name in SCHEMA[place]}
        for name, value in node.items():
            assert CHOICES.get(name, value) == value


def test_a_record_says_what_is_guaranteed(audited) -> None:
    """Unit, neighbors, planned epsilon and delta, mechanisms with their parameters, composition, assumptions, losses."""
    record = registry_record(
        audited.releases["first"], ["The generator is unpredictable."], "0.1.0"
    )["deployment"]
    assert record["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "One row" in record["privacy_loss"]["privacy_unit_details"]
    assert "add-remove" in record["privacy_loss"]["privacy_unit_details"]
    assert (
        "1 draw(s) that were charged and lost"
        in record["privacy_loss"]["privacy_parameters_details"]
    )
    mechanisms = record["implementation"]["mechanisms"].splitlines()
    assert [line.split(":")[0] for line in mechanisms] == [
        "- count (CHARGED_LOST)", "- level-1 (COMMITTED)", "- level-2 (RETURNED)",
    ]  # fmt: skip
    assert all("standard deviation 10 times" in line and "mu^2 0.01" in line for line in mechanisms)
    assert "mu^2" in record["implementation"]["composition"]
    assert record["deployment_model"]["trust_assumptions"] == "- The generator is unpredictable.\n"
    assert (
        record["basic"]["publication_date"]
        == audited.releases["first"].published.date().isoformat()
    )


@pytest.mark.parametrize(("unit", "noun"), [("row", "row"), ("subject:id", "subject")])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_neighbors_differ_in_a_unit(audited, unit, noun, neighbors) -> None:
    """A subject's neighbors are called subjects everywhere, and nothing is called a record."""
    told = registry_record(
        replace(audited.releases["first"], unit=unit, neighbors=neighbors), [], "0.1.0"
    )["deployment"]
    details = (
        told["privacy_loss"]["privacy_unit_details"] + told["dp_variant"]["unprotected_quantities"]
    )
    assert details.startswith(f"One {noun}")
    assert "record" not in details
    assert (f"without one {noun}." in details) == (neighbors == "add-remove")
    assert (f"the number of {noun}s is not protected" in details) == (neighbors == "replace-one")


@pytest.mark.parametrize("tables", [1, 3])
def test_rows_of_linked_tables_belong_to_a_unit(audited, tables) -> None:
    """The ledger knows how many tables there were, not their names: those are in privacy.json."""
    record = replace(audited.releases["first"], unit="subject:id", tables=tables)
    details = registry_record(record, [], "0.1.0")["deployment"]["privacy_loss"]
    said = "in the source, and all rows with this value in 2 linked table(s)."
    assert (said in details["privacy_unit_details"]) == (tables == 3)


def test_what_is_not_published_has_no_record(audited) -> None:
    with pytest.raises(ValueError, match="not published"):
        registry_record(audited.releases["second"], [], "0.1.0")


def test_json_lines_prove_the_chain_to_whoever_has_no_key(audited) -> None:
    """From the exported lines alone every hash is found again."""
    previous = GENESIS
    lines = json_lines(audited.rows).decode().splitlines()
    assert len(lines) == len(audited.rows)
    for line in lines:
        row = json.loads(line)
        row["body"] = json.dumps(row["body"], sort_keys=True, separators=(",", ":"))
        assert row["prev_hash"] == previous
        assert row_hash(row) == row["row_hash"]
        previous = row["row_hash"]


def test_csv_has_the_same_rows(audited) -> None:
    """Quotes and line breaks in a reason survive; an empty cell is a missing value."""
    rows = list(csv.DictReader(io.StringIO(comma_separated(audited.rows).decode(), newline="")))
    assert [{name: value or None for name, value in row.items()} for row in rows] == [
        {name: None if value in {None, ""} else str(value) for name, value in row.items()}
        for row in audited.rows
    ]


def test_nothing_private_is_exported(audited, location) -> None:
    """No key, and no number of records: the registry's field for it stays away."""
    exported = json_lines(audited.rows) + comma_separated(audited.rows)
    record = json.dumps(registry_record(audited.releases["first"], [], "0.1.0"))
    assert key_file(location).read_text().strip() not in exported.decode() + record
    assert "number_of_privacy_units" not in record
    assert audited.releases["first"].source_digest not in record
