"""A table on S3 is released by the command line, found again, and refused when it changes; nothing of AWS is kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.release_checks import opened
from tests.support.s3_server import SECRET, s3_server

pytestmark = pytest.mark.system


def test_a_release_from_s3(marginweave: CommandLine) -> None:
    """Charged once; another object, a server that is away and nobody's credentials are refused in one sentence (exit 2)."""
    with s3_server() as server:
        path = people(
            marginweave.home, source="s3://tables/people.csv", aggregate__reporting_length=1
        )
        table = marginweave.home / "people.csv"
        rows = table.read_bytes()
        table.unlink()
        server.put("people.csv", rows)
        cli = replace(marginweave, environment={**marginweave.environment, **server.environment})
        opened(cli, 3)
        first, again = (cli("run", path, "--run", "r") for _ in range(2))
        assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
        assert cli("ledger", "list").stdout.count("epsilon 1 of 3") == 1
        server.put("people.csv", rows[:-2] + b"1\n")
        refused = [
            (cli("run", path, "--run", "r"), "was made from other source bytes"),
            (
                _without(cli, "AWS_SECRET_ACCESS_KEY")("run", path, "--run", "s"),
                "S3 refuses it (ACCESS_DENIED)",
            ),
        ]
    refused.append((cli("run", path, "--run", "s"), "S3 cannot be reached"))
    for done, words in refused:
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    kept = [file.read_bytes() for file in marginweave.home.rglob("*") if file.is_file()]
    for unseen in (SECRET, hashlib.md5(rows).hexdigest()):  # the ETag is a digest without a key
        assert not any(unseen.encode() in content for content in kept)


def _without(cli: CommandLine, name: str) -> CommandLine:
    return replace(cli, environment={**cli.environment, name: ""})
