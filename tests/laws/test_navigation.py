"""An editor's go-to-definition works on the clone: imports lead to the files of this repository, without anything installed."""

from __future__ import annotations

from pathlib import Path

import jedi
import pytest

from tests.support.places import REPOSITORY

# What a reader would click on: where it stands, and where it leads.
NAMES = [
    ("marginweave.draws.protocol", "run_draw", "src/marginweave/draws/protocol.py"),
    ("marginweave.ledger", "Ledger", "src/marginweave/ledger/ledger.py"),
    ("marginweave.mechanisms.gaussian", "noise_sigma", "src/marginweave/mechanisms/gaussian.py"),
    ("marginweave.planning.split", "plan_budget", "src/marginweave/planning/split.py"),
    ("marginweave.configuration.load", "resolve", "src/marginweave/configuration/load.py"),
    ("marginweave.estimate.mixture.fit", "fit_mixture", "src/marginweave/estimate/mixture/fit.py"),
    ("marginweave.configuration.release", "Configuration", "src/marginweave/configuration/release.py"),
    ("marginweave.accounting.accounts", "Account", "src/marginweave/accounting/accounts.py"),
    ("marginweave.runs.request", "read_request", "src/marginweave/runs/request.py"),
    ("marginweave.flows.release", "release", "flows/release.py"),
]


@pytest.mark.parametrize(("module", "name", "file"), NAMES)
def test_a_name_leads_to_its_definition(module: str, name: str, file: str) -> None:
    """From a script of the clone, whose only path is `src`."""
    code = f"from {module} import {name}\n{name}\n"
    project = jedi.Project(REPOSITORY, sys_path=[str(REPOSITORY / "src")], load_unsafe_extensions=False)
    found = jedi.Script(code, path=REPOSITORY / "somewhere.py", project=project).goto(2, 1, follow_imports=True)
    (place,) = {Path(definition.module_path or "").resolve() for definition in found}
    assert place == (REPOSITORY / file).resolve()
    assert found[0].line is not None
