"""A server that speaks S3, moto's, on loopback and in this process; skipped where moto is not installed."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

SECRET = "xq7secret"
BUCKET = "tables"


@dataclass(frozen=True)
class S3Server:
    """Where it is, who may read it, and how something gets there."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables of AWS that name it, and somebody who may read."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "xq7name",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def put(self, key: str, content: bytes) -> str:
        """The source that an object with this content is."""
        self._ask(f"{BUCKET}/{key}", content)
        return f"s3://{BUCKET}/{key}"

    def _ask(self, path: str, content: bytes) -> None:
        who = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=b"
        request = urllib.request.Request(
            f"{self.url}/{path}",
            data=content,
            method="PUT",
            headers={"Authorization": who, "Content-Type": "text/csv"},
        )
        urllib.request.urlopen(request, timeout=60).close()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with one empty bucket, until the end."""
    moto = pytest.importorskip(
        "moto.server",
        reason="moto is not installed: pip install --constraint constraints.txt '.[test]'",
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        started = S3Server(f"http://127.0.0.1:{server.get_host_and_port()[1]}")
        started._ask(BUCKET, b"")
        yield started
    finally:
        server.stop()
