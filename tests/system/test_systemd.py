"""deployments/systemd: units that systemd takes, hardened, without a secret; their programs are those of the environment."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system
UNITS = sorted((REPOSITORY / "deployments" / "systemd").glob("*.service"))
HARDENED = {
    "NoNewPrivileges": "true",
    "ProtectSystem": "strict",
    "ProtectHome": "true",
    "PrivateTmp": "true",
    "PrivateDevices": "true",
    "LimitCORE": "0",
    "UMask": "0077",
    "CapabilityBoundingSet": "",
    "RestrictNamespaces": "true",
    "RestrictSUIDSGID": "true",
    "StateDirectoryMode": "0700",
}
_EXPOSURE = 15  # systemd's own figure times ten: 100 is a unit without any of this
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def settings(unit: Path) -> dict[str, str]:
    """The [Service] section; of a key that is there twice the last."""
    parser = RawConfigParser(strict=False, comment_prefixes=("#", ";"), delimiters=("=",))
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read_string(unit.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
    return dict(parser["Service"])


@pytest.fixture
def installed(unit: Path, tmp_path: Path) -> Path:
    """The unit with the programs of this environment in the place of /opt/marginweave/venv."""
    place = tmp_path / unit.name
    place.write_text(
        unit.read_text().replace("/opt/marginweave/venv", str(Path(sys.executable).parent.parent))
    )
    return place


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip(
            "there is no systemd-analyze here; the settings themselves are checked all the same"
        )
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


@each_unit
def test_the_unit_is_hardened(unit: Path) -> None:
    """Every rule of the house stands, under a user that is not root, with programs of the environment."""
    found = settings(unit)
    assert HARDENED.items() <= found.items()
    assert found["User"] not in {"root", "0", ""}
    program = Path(
        found["ExecStart"]
        .split()[0]
        .replace("/opt/marginweave/venv", str(Path(sys.executable).parent.parent))
    )
    assert program.is_file()


def reaches(found: dict[str, str], address: str) -> bool:
    """Whether systemd lets a packet through: an allowed address wins over a denied one, and who names none reaches all."""
    places = {
        "any": ["0.0.0.0/0", "::/0"],
        "localhost": ["127.0.0.0/8", "::1/128"],
        "link-local": ["169.254.0.0/16", "fe80::/64"],
        "multicast": ["224.0.0.0/4", "ff00::/8"],
    }
    allowed, denied = (
        any(
            ip_address(address) in ip_network(network)
            for word in found.get(key, "").split()
            for network in places[word]
        )
        for key in ("IPAddressAllow", "IPAddressDeny")
    )
    return allowed or not denied


@each_unit
def test_who_reaches_which_address(unit: Path) -> None:
    """Webhooks and mail leave the server, the only process that sends them; nothing that sees rows leaves this machine."""
    found = settings(unit)
    sends = unit.stem == "prefect-server"
    assert {"AF_INET", "AF_INET6"} <= set(found["RestrictAddressFamilies"].split())
    assert reaches(found, "127.0.0.1")
    assert reaches(found, "::1")
    for address in ("203.0.113.7", "10.0.0.5", "2001:db8::7"):
        assert reaches(found, address) == sends
    assert not reaches(found, "169.254.169.254")  # where clouds hand out credentials


@each_unit
def test_no_unit_holds_a_secret(unit: Path) -> None:
    """Passwords and keys are files that a variable names; no URL has a password."""
    text = unit.read_text()
    assert not re.search(r"://[^/\s]*:[^/\s@]*@", text)
    assert not re.search(r"(PASSWORD|AUTH_STRING|LEDGER_KEY|PGPASSWORD)=", text)
    assert "PGPASSFILE=/etc/marginweave/" in text


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('PREFECT_SERVER_API_AUTH_STRING = "office:word"', 0),
        ('PREFECT_SERVER_API_AUTH_STRING = ""', 1),
        ('PREFECT_API_AUTH_STRING = "office:word"', 1),
        ("", 1),
    ],
)
def test_the_server_does_not_start_without_a_password(line: str, code: int, tmp_path: Path) -> None:
    """The command that systemd runs before it fails without the password of the API."""
    (unit,) = (unit for unit in UNITS if unit.stem == "prefect-server")
    profiles = tmp_path / "profiles"
    profiles.write_text(f'active = "office"\n\n[profiles.office]\n{line}\n')
    command = [
        word.replace("/etc/marginweave/prefect/profiles", str(profiles))
        for word in shlex.split(settings(unit)["ExecStartPre"])
    ]
    assert subprocess.run(command, check=False).returncode == code


@each_unit
def test_systemd_takes_the_unit(installed: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    verified = analyze("verify", str(installed))
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@each_unit
def test_systemd_finds_it_hardened(installed: Path) -> None:
    """`systemd-analyze security` gives it at most 1.5 of 10; without the hardening it is above 9."""
    judge = ("security", "--offline=true", "--no-pager", f"--threshold={_EXPOSURE}")
    judged = analyze(*judge, str(installed))
    assert judged.returncode == 0, judged.stdout
    bare = installed.with_name("bare.service")
    bare.write_text(
        installed.read_text().partition("UMask=0077")[0]
        + "\n[Install]\nWantedBy=multi-user.target\n"
    )
    assert analyze(*judge, str(bare)).returncode != 0
