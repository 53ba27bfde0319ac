"""Secrets and files of real processes: who may read what, and where a secret must not turn up."""

from __future__ import annotations

import json
import secrets
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.places import REPOSITORY
from tests.support.postgres import Server
from tests.support.prefect_api import ask
from tests.support.protection_hook import heard, witness
from tests.support.release_checks import only_run, opened

pytestmark = pytest.mark.system
PASSWORD = "hidden-word"
SAVE_BLOCKS = """
import json, sys
from prefect.blocks.system import Secret
for name, value in json.load(sys.stdin).items():
    Secret(value=value).save(name, overwrite=True)
"""


def test_files_are_closed_whatever_the_umask(served: CommandLine, tmp_path: Path) -> None:
    """Under umask 0 nothing can be written by others, and what is private cannot be read by them; core dumps are off."""
    hook = tmp_path / "hook"
    cli = CommandLine(served.home, {**served.environment, **witness(hook)})
    opened(cli)
    configuration = people(tmp_path, publish__keep_private=True, evaluate__internal=True)
    done = subprocess.run(
        cli.command("run", configuration), env=cli.variables, cwd=cli.home, umask=0, check=False
    )
    assert done.returncode == 0
    run = only_run(cli)
    for path in [
        cli.home / "ledger",
        *(cli.home / "ledger").iterdir(),
        run / "private",
        run / "derived",
        run / "internal",
    ]:
        assert path.stat().st_mode & 0o077 == 0, path
    for path in (run.parent, run, *run.rglob("*")):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    for seen in heard(hook):
        assert (seen["core"], seen["dumpable"], seen["umask"] & 0o022) == ([0, 0], 0, 0o022)


def save_blocks(cli: CommandLine, secrets_: dict[str, str]) -> None:
    """Secret blocks by name, saved by a process that is told them on standard input."""
    told = json.dumps(secrets_)
    subprocess.run(
        [sys.executable, "-c", SAVE_BLOCKS],
        env=cli.variables,
        input=told,
        text=True,
        check=True,
        timeout=180,
    )


def make_pool(server: str, name: str, template: dict[str, Any]) -> None:
    """As `prefect work-pool create` makes it, which tests/system/test_production.py types."""
    ask(server, "/work_pools/", {"name": name, "type": "process", "base_job_template": template})


def prefect(cli: CommandLine, *arguments: str, **more: Any) -> str:
    """Prefect's own command line; standard output."""
    command = [str(Path(sys.executable).parent / "prefect"), "--no-prompt", *arguments]
    done = subprocess.run(
        command,
        env=cli.variables,
        cwd=cli.home,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        **more,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def deployed(cli: CommandLine, server: str, configuration: Path) -> str:
    """A deployment in a pool of the repository's template; its flow run is due now."""
    deployment = {
        "name": "secrets",
        "entrypoint": "marginweave.flows.release.release",
        "parameters": {"configuration": str(configuration)},
        "work_pool": {"name": "with-secrets", "job_variables": {"env": {"EXTRA": "kept"}}},
    }
    file = cli.home / "prefect.yaml"
    file.write_text(yaml.safe_dump({"name": "test", "pull": [], "deployments": [deployment]}))
    make_pool(
        server,
        "with-secrets",
        json.loads((REPOSITORY / "deployments" / "work-pool.json").read_text()),
    )
    said = prefect(cli, "deploy", "--prefect-file", str(file), "--all")
    (made,) = ask(server, "/deployments/filter", {"deployments": {"name": {"any_": ["secrets"]}}})
    ask(server, f"/deployments/{made['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})
    return said


def everything_prefect_shows(url: str) -> str:
    """What the API tells of pools, deployments, flow runs, their logs and blocks, as somebody sees it in the pages."""
    import httpx

    bodies = {
        "logs": {},
        "flow_runs": {},
        "deployments": {},
        "work_pools": {},
        "artifacts": {},
        "block_documents": {},
    }
    answers = [httpx.post(f"{url}/{place}/filter", json=body) for place, body in bodies.items()]
    assert all(answer.status_code == 200 for answer in answers)
    return " ".join(answer.text for answer in answers)


@pytest.mark.long  # starts another server, which takes a minute
def test_secrets_from_prefect_blocks(
    alone: CommandLine, server: str, server_folder: Path, database_server: Server, tmp_path: Path
) -> None:
    """Ledger URL and key live in Secret blocks; a worker that has neither releases; both turn up nowhere else."""
    owner = database_server.database()
    url = database_server.role(owner).replace(":@", f":{PASSWORD}@")
    key = secrets.token_hex(32)
    steward = CommandLine(alone.home, {"MARGINWEAVE_LEDGER": url, "MARGINWEAVE_LEDGER_KEY": key})
    role = url.partition("://")[2].partition(":")[0]
    made = replace(steward, environment={**steward.environment, "MARGINWEAVE_LEDGER_OWNER": owner})
    assert made("ledger", "create-tables", "--writer", role).returncode == 0
    opened(steward)

    hook = tmp_path / "hook"
    api = {
        "PREFECT_API_URL": server,
        "PREFECT_HOME": str(alone.home / "prefect"),
        "MARGINWEAVE_LEDGER": "",
    }
    worker = CommandLine(alone.home, {**api, **witness(hook)})
    save_blocks(worker, {"marginweave-ledger": url, "marginweave-ledger-key": key})
    said = deployed(worker, server, people(tmp_path))
    said += prefect(
        worker, "worker", "start", "--pool", "with-secrets", "--type", "process", "--run-once"
    )
    assert (only_run(worker) / "release" / "privacy.json").is_file(), said

    shown = said + everything_prefect_shows(server)
    assert "marginweave-ledger-key" in shown
    for secret in (PASSWORD, key, url):
        assert secret not in shown
        for place in (alone.home, server_folder):
            for file in (path for path in place.rglob("*") if path.is_file()):
                assert secret.encode() not in file.read_bytes(), file
    # Prefect's, of the flow process
    flow = [seen for seen in heard(hook) if seen["program"] == "engine.py"]
    assert flow, "the flow process of the worker has not testified"
    assert all((seen["core"], seen["dumpable"]) == ([0, 0], 0) for seen in flow)


def test_a_block_in_a_deployment_would_be_written_down(alone: CommandLine, server: str) -> None:
    """Why the references stand in the pool: `prefect deploy` resolves those of a deployment, and keeps the secret readable."""
    from prefect.workers.process import ProcessWorker

    cli = CommandLine(
        alone.home, {"PREFECT_API_URL": server, "PREFECT_HOME": str(alone.home / "prefect")}
    )
    save_blocks(cli, {"told": "shown-word"})
    deployment = {
        "name": "told",
        "entrypoint": "marginweave.flows.release.release",
        "parameters": {"configuration": "none.yaml"},
        "work_pool": {
            "name": "telling",
            "job_variables": {"env": {"X": "{{ prefect.blocks.secret.told }}"}},
        },
    }
    (cli.home / "prefect.yaml").write_text(
        yaml.safe_dump({"name": "test", "pull": [], "deployments": [deployment]})
    )
    make_pool(server, "telling", ProcessWorker.get_default_base_job_template())
    prefect(cli, "deploy", "--prefect-file", str(cli.home / "prefect.yaml"), "--all")
    assert "shown-word" in everything_prefect_shows(server)


def test_the_template_is_prefects_own_but_for_the_secrets() -> None:
    """deployments/work-pool.json follows the installed Prefect; the references are all that it adds."""
    from prefect.workers.process import ProcessWorker

    template = json.loads((REPOSITORY / "deployments" / "work-pool.json").read_text())
    added = template["variables"]["properties"]["env"].pop("default")
    assert template == ProcessWorker.get_default_base_job_template()
    assert added == {
        "MARGINWEAVE_LEDGER": "{{ prefect.blocks.secret.marginweave-ledger }}",
        "MARGINWEAVE_LEDGER_KEY": "{{ prefect.blocks.secret.marginweave-ledger-key }}",
    }
