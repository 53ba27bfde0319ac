"""An editor's go-to-definition works on the clone: imports lead to the files of this repository, without anything installed."""

from __future__ import annotations

from pathlib import Path

import jedi
import pytest

from tests.support.places import REPOSITORY

# What a reader would click on: where it stands, and where it leads.
NAMES = [
    ("marginweave.tasks.checkpoint.draws", "run_draw", "tasks/checkpoint/draws.py"),
    ("marginweave.tasks.ledger", "Ledger", "tasks/ledger/ledger.py"),
    ("marginweave.tasks.mechanisms.gaussian", "noise_sigma", "tasks/mechanisms/gaussian.py"),
    ("marginweave.tasks.accounting.plan.k_tuples", "plan_budget", "tasks/accounting/plan/k_tuples.py"),
    ("marginweave.tasks.accounting.plan.resolve", "resolve", "tasks/accounting/plan/resolve.py"),
    ("marginweave.tasks.estimate.mixture.fit", "fit_mixture", "tasks/estimate/mixture/fit.py"),
    ("marginweave.schemas.configuration.release", "Configuration", "schemas/configuration/release.py"),
    ("marginweave.schemas.ledger.accounts", "Account", "schemas/ledger/accounts.py"),
    ("marginweave.flows.run.request", "read_request", "flows/run/request.py"),
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
