"""deployments/compose as the specification reads it, by rules that hold for every service; and its commands as processes."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from marginweave.flows.prefect.supervisor import SIGN_OF_LIFE
from tests.support.cluster import Cluster, pgpass
from tests.support.command_line import CommandLine
from tests.support.places import REPOSITORY
from tests.support.production import free_port
from tests.support.release_checks import opened

PLACE = REPOSITORY / "deployments" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((PLACE / "compose.yaml").read_text())
PAGES: dict[str, Any] = yaml.safe_load((PLACE / "compose.pages.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# an office's own, beside the file
FOLDERS = {"./configurations", "./tables", "./backup", "./vault"}
DIGEST = "@sha256:[0-9a-f]{64}"
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def weaknesses(compose: dict[str, Any]) -> list[str]:
    """What the rules of this house find in a compose file."""
    found = []
    for name, service in compose["services"].items():
        pinned = re.fullmatch(
            rf"marginweave:\d+(\.\d+)+(\.dev\d+)?|[a-z]+{DIGEST}", service["image"]
        )
        closed = all(
            compose["networks"][network].get("internal") for network in service["networks"]
        )
        rules = {
            "root": str(service.get("user", "0")).split(":")[0] in {"0", "root"},
            "writable root": service.get("read_only") is not True,
            "capabilities": service.get("cap_drop") != ["ALL"]
            or "cap_add" in service
            or service.get("privileged"),
            "new privileges": "no-new-privileges:true" not in service.get("security_opt", []),
            "no version": not pinned,
            "published ports": "ports" in service or "network_mode" in service,
            "a way out": not closed,
            "core dumps": service.get("ulimits", {}).get("core") != 0,
            "no tmpfs": not service.get("tmpfs"),
            "a secret in the environment": any(
                re.search(r"PASSWORD$|AUTH_STRING|LEDGER_KEY$", key)
                or re.search(r"://[^/]*:[^/]*@", str(value))
                for key, value in service["environment"].items()
            ),
        }
        found += [f"{name}: {rule}" for rule, broken in rules.items() if broken]
    return found


def test_the_files_are_what_the_specification_says() -> None:
    """A validating reader of the Compose specification takes both."""
    for file in (COMPOSE, PAGES):
        told = compose_spec.PyCompose.from_json(json.dumps(file))
        assert set(told.service_names()) == set(file["services"])
    with pytest.raises((ValueError, TypeError)):
        compose_spec.PyCompose.from_json('{"services": {"a": {"imago": "b"}}}')


def test_no_service_breaks_a_rule() -> None:
    assert weaknesses(COMPOSE) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"user": "root"}, "worker: root"),
        ({"read_only": False}, "worker: writable root"),
        ({"cap_add": ["SYS_ADMIN"]}, "worker: capabilities"),
        ({"image": "postgres:latest"}, "worker: no version"),
        ({"image": "postgres:17.6-bookworm"}, "worker: no version"),
        ({"ports": ["5432:5432"]}, "worker: published ports"),
        ({"environment": {"X": "postgresql://u:p@h/d"}}, "worker: a secret in the environment"),
        ({"ulimits": {}}, "worker: core dumps"),
    ],
)
def test_the_rules_can_tell(change: dict[str, Any], found: str) -> None:
    changed = {**COMPOSE, "services": {"worker": {**SERVICES["worker"], **change}}}
    assert weaknesses(changed) == [found]


def test_another_linter_finds_nothing_of_weight() -> None:
    """compose-lint (OWASP, CIS): nothing but the image without a digest that is built here."""
    lint = Path(sys.executable).parent / "compose-lint"
    said = subprocess.run(
        [lint, "check", PLACE / "compose.yaml"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout
    assert set(re.findall(r"CL-\d{4}", said.stdout.partition("Details on any rule")[0])) <= {
        "CL-0019"
    }


@each_service
def test_everything_that_is_named_is_there(service: dict[str, Any]) -> None:
    """Networks, secrets and volumes are declared; a secret that is read is given, and nothing else."""
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    read = {
        str(v).removeprefix("/run/secrets/")
        for v in service["environment"].values()
        if "/run/secrets/" in str(v)
    }
    assert read == set(service["secrets"]) <= set(COMPOSE["secrets"])
    for mount in service.get("volumes", []):
        source = mount.split(":")[0]
        assert source in COMPOSE["volumes"] or source in FOLDERS or (PLACE / source).is_file()


def test_who_reaches_which_database() -> None:
    """The server reaches Prefect's database, the worker the ledger's; one service has the owner's password."""
    reaches = {name: set(service["networks"]) for name, service in SERVICES.items()}
    assert reaches["prefect-server"] == {"prefect-database", "prefect-api"}
    assert reaches["worker"] == {"ledger-database", "prefect-api"}
    assert reaches["prefect-database"] == {"prefect-database"}
    assert reaches["ledger-database"] == {"ledger-database"}
    owners = {
        name for name, service in SERVICES.items() if "ledger-owner-pgpass" in service["secrets"]
    }
    writes_key = {
        name
        for name, s in SERVICES.items()
        for m in s.get("volumes", [])
        if re.fullmatch(r"ledger-key:[^:]*", m)
    }
    assert owners == {"ledger-tables"}
    assert writes_key == {"steward"}


def test_a_service_that_hangs_is_found_out() -> None:
    """Whatever `up` starts has a check of itself: at its own port, or of the file that the supervisor touches."""
    started = {name: service for name, service in SERVICES.items() if "profiles" not in service}
    checks = {name: " ".join(service["healthcheck"]["test"]) for name, service in started.items()}
    worker = SERVICES["worker"]
    assert "--with-healthcheck" in worker["command"]
    assert (
        f"127.0.0.1:{worker['environment']['PREFECT_WORKER_WEBSERVER_PORT']}/health"
        in checks["worker"]
    )
    prefect_home = re.search(r"PREFECT_HOME=(\S+)", (PLACE / "Dockerfile").read_text())
    assert prefect_home is not None
    assert f"find {prefect_home[1]}/{SIGN_OF_LIFE} " in checks["supervisor"]


@pytest.mark.parametrize(("age", "code"), [(0, 0), (600, 1), (None, 1)])
def test_the_supervisor_is_well_as_long_as_its_file_is_new(
    tmp_path: Path, age: int | None, code: int
) -> None:
    """The command of its check."""
    file = tmp_path / SIGN_OF_LIFE
    if age is not None:
        file.touch()
        os.utime(file, (time.time() - age, time.time() - age))
    kind, command = SERVICES["supervisor"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    checked = subprocess.run(
        ["sh", "-c", command.replace("/tmp/prefect", str(tmp_path))],
        capture_output=True,
        check=False,
    )
    assert checked.returncode == code


def test_the_pages_are_published_on_loopback_and_by_the_server_alone() -> None:
    assert list(PAGES["services"]) == ["prefect-server"]
    assert all(
        port.startswith("127.0.0.1:") for port in PAGES["services"]["prefect-server"]["ports"]
    )


def test_the_dockerfile(tmp_path: Path) -> None:
    """Pinned bases, a last word of USER that is no root, nothing fetched but by pip under constraints, files that exist."""
    parser = DockerfileParser(path=str(tmp_path / "Dockerfile"))
    parser.content = (PLACE / "Dockerfile").read_text()
    steps = [
        (step["instruction"], step["value"])
        for step in parser.structure
        if step["instruction"] != "COMMENT"
    ]
    assert all(
        re.fullmatch(rf"\S+:\d+\.\d+\.\d+-[a-z-]+{DIGEST}", base) for base in parser.parent_images
    )
    assert [value for step, value in steps if step == "USER"] == ["10001:10001"]
    assert not {"ADD", "EXPOSE"} & {step for step, _ in steps}
    runs = " ".join(value for step, value in steps if step == "RUN")
    assert "--constraint constraints.txt" in runs
    assert not re.search(r"curl|wget|apt-get|chmod [-+\d]*[67]77", runs)
    for copied in (
        value.split() for step, value in steps if step == "COPY" and "--from" not in value
    ):
        assert all((REPOSITORY / source).exists() for source in copied[:-1]), copied
    assert all(
        str(service["user"]) == "10001:10001"
        for service in SERVICES.values()
        if "marginweave" in service["image"]
    )


_KERNEL = """
import numpy
from marginweave.estimate.rounding import to_simplex
to_simplex(numpy.ones(3), 1.0)
print(sum(to_simplex.stats.cache_hits.values()), sum(to_simplex.stats.cache_misses.values()))
"""


def test_a_container_starts_with_what_the_image_has_compiled(tmp_path: Path) -> None:
    """What the entry point copies numba takes, whoever it belongs to; and the command that was meant is run, word by word."""
    parser = DockerfileParser(path=str(tmp_path / "Dockerfile"))
    parser.content = (PLACE / "Dockerfile").read_text()
    steps = {step["instruction"]: step["value"] for step in parser.structure}
    assert "NUMBA_CACHE_DIR=/tmp/numba" in steps["ENV"]
    compiled = next(
        s["value"]
        for s in parser.structure
        if "compile.sh" in s["value"] and s["instruction"] == "RUN"
    )
    assert "NUMBA_CACHE_DIR=/opt/marginweave/numba" in compiled
    # numba's files are for their owner alone
    assert "chmod -R a+rX /opt/marginweave/numba" in compiled
    image, container = tmp_path / "image", tmp_path / "container"
    container.mkdir()
    places = {" /tmp/;": f" {container}/;", "/opt/marginweave": str(image)}
    entry = [
        functools.reduce(lambda text, place: text.replace(*place), places.items(), word)
        for word in json.loads(steps["ENTRYPOINT"])
    ]

    def kernel(cache: Path, *before: str) -> str:
        command, environment = (
            [*before, sys.executable, "-c", _KERNEL],
            {**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        )
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert kernel(image / "numba") == "0 1"
    assert kernel(container / "numba", *entry) == "1 0"


@pytest.mark.long  # four releases, with nothing compiled
def test_the_image_compiles_what_releases_need(tmp_path: Path) -> None:
    """The script of the image leaves nothing of the releases behind, and the kernels of every method of records."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba"), "TMPDIR": str(tmp_path),
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    example = REPOSITORY / "deployments" / "examples" / "affairs.yaml"
    subprocess.run([PLACE / "compile.sh", example], env=environment, check=True, timeout=900)
    assert [
        path.name for path in tmp_path.iterdir() if not path.name.startswith("marginweave")
    ] == ["numba"]
    compiled = {index.name.split("-")[0] for index in (tmp_path / "numba").rglob("*.nbi")}
    assert {
        "grow.grow_records",
        "kernel.update",
        "kernels.add_counts",
        "rounding.to_simplex",
    } <= compiled


# From here on the commands themselves, with the addresses of this machine in the place of the services' names.


@pytest.fixture
def files(databases: Cluster, tmp_path: Path) -> dict[str, Path]:
    """secrets/ as operations.md has them made."""
    place, port = tmp_path / "secrets", databases.port
    place.mkdir()
    profiles = place / "prefect-profiles"
    api = "\n".join(f'PREFECT_{side}API_AUTH_STRING = "admin:api-word"' for side in ("", "SERVER_"))
    profiles.write_text(f'active = "office"\n\n[profiles.office]\n{api}\n')
    profiles.chmod(0o400)
    return {
        "prefect-profiles": profiles,
        "prefect-pgpass": pgpass(place / "prefect-pgpass", port, prefect="prefect-word"),
        "ledger-owner-pgpass": pgpass(
            place / "ledger-owner-pgpass",
            port,
            ledger_owner="owner-word",
            ledger_writer="writer-word",
        ),
        "ledger-writer-pgpass": pgpass(
            place / "ledger-writer-pgpass", port, ledger_writer="writer-word"
        ),
    }


class Service:
    """A service's command and environment, as a process of this machine."""

    def __init__(
        self, name: str, home: Path, files: dict[str, Path], databases: Cluster, api: int
    ) -> None:
        service, self.home = SERVICES[name], home
        places = {
            "/var/lib/marginweave-key": str(home / "key"),
            "/var/lib/marginweave": str(home),
            "/tmp/ui": str(home / "ui"),
            "http://127.0.0.1:4200/": f"http://127.0.0.1:{api}/",
            "@prefect-database/": f"@127.0.0.1:{databases.port}/",
            "@ledger-database/": f"@127.0.0.1:{databases.port}/",
            "prefect-server:4200": f"127.0.0.1:{api}",
            "8080": str(free_port()),
            **{f"/run/secrets/{secret}": str(file) for secret, file in files.items()},
        }
        self.environment = {"PREFECT_HOME": str(home / f"prefect-of-{name}")}
        for key, value in service["environment"].items():
            self.environment[key] = functools.reduce(
                lambda text, place: text.replace(*place), places.items(), str(value)
            )
        self.command = [
            {"0.0.0.0": "127.0.0.1", "4200": str(api)}.get(word, word)
            for word in map(str, service["command"])
        ]
        self.command[0] = str(Path(sys.executable).parent / self.command[0])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """To its end; with another command of the same program where one is given."""
        whole = [self.command[0], *command] if command else self.command
        return subprocess.run(
            whole,
            env=self._variables(),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @contextmanager
    def started(self, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """In the background, in a group of its own that is gone at the end."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command,
                env=self._variables(),
                cwd=self.home,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _variables(self) -> dict[str, str]:
        return {**CommandLine(self.home).variables, **self.environment}


def answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until `url` answers."""
    for _ in range(900):
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=1)
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.system
# another server and worker, as in test_production.py, with the passwords of the compose file
@pytest.mark.long
def test_the_commands_run(databases: Cluster, files: dict[str, Path], tmp_path: Path) -> None:
    """Roles by psql, tables by their owner, an account by the writer; server and worker against them, passwords in files."""
    home, api = tmp_path / "home", free_port()
    home.mkdir()
    sql, words = (
        REPOSITORY / "deployments" / "postgresql",
        {"OWNER_PASSWORD": "owner-word", "WRITER_PASSWORD": "writer-word"},
    )
    for file, environment in (
        ("prefect.sql", {"PREFECT_PASSWORD": "prefect-word"}),
        ("ledger.sql", words),
    ):
        made = databases.program("psql", "--quiet", "--file", str(sql / file), **environment)
        assert made.returncode == 0, made.stderr

    services = {
        name: Service(name, home, files, databases, api)
        for name in SERVICES
        if "command" in SERVICES[name]
    }
    made = services["ledger-tables"].run()
    assert made.returncode == 0, made.stderr
    steward = services["steward"]
    opened(CommandLine(home, steward.environment), 3)
    assert (home / "key" / "ledger.key").stat().st_mode & 0o777 == 0o600
    listed = steward.run()
    assert "people: epsilon 0 of 3 spent" in listed.stdout, listed.stderr
    for database, role in (("prefect", "ledger_writer"), ("ledger", "prefect")):
        url = databases.url(role, database)
        refused = databases.program(
            "psql", url, "--command", "SELECT 1", PGPASSFILE=str(files["ledger-writer-pgpass"])
        )
        assert refused.returncode != 0

    logs = {name: tmp_path / f"{name}.log" for name in ("prefect-server", "worker")}
    with services["prefect-server"].started(logs["prefect-server"]) as server:
        answers(server, f"http://127.0.0.1:{api}/api/health", logs["prefect-server"])
        with services["worker"].started(logs["worker"]) as worker:
            _wait_for(logs["worker"], "started!", worker)
            health = services["worker"].environment["PREFECT_WORKER_WEBSERVER_PORT"]
            answers(worker, f"http://127.0.0.1:{health}/health", logs["worker"])
            # Prefect's pages are there
            with urllib.request.urlopen(f"http://127.0.0.1:{api}/") as pages:
                assert b"<html" in pages.read().lower()
            assert (home / "ui").is_dir()
            stranger = subprocess.run(
                [services["worker"].command[0], "work-pool", "ls"],
                env={
                    **services["worker"]._variables(),
                    "PREFECT_PROFILES_PATH": str(tmp_path / "none"),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert stranger.returncode != 0, "the API answers without its password"
            pool = services["worker"].run("work-pool", "inspect", "marginweave")
            assert "type='process'" in pool.stdout, pool.stdout + pool.stderr
    for log in logs.values():
        assert not re.search(r"(superuser|prefect|owner|writer|api)-word", log.read_text())


def _wait_for(log: Path, word: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if word in log.read_text():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())
