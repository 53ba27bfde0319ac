"""A table on S3 is what it is on a disk: the same rows, digest and refusals; who may read it is said to nobody."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.base.places import is_path
from marginweave.configuration.execution import SourceFile, check_place
from marginweave.sources import parts
from marginweave.sources.source import TableSource, check_header, source_columns
from tests.support.s3_server import SECRET, S3Server, s3_server
from tests.support.source_tests import Row, SourceTests, Write, table_of

FORM = SourceFile(file="unused.csv")
ROWS = b"a,b\n" + b'1,"x, y"\n2,\n' * 5000


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture(autouse=True)
def _reader(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


class TestS3(SourceTests):
    """Objects of both kinds, in a bucket."""

    @pytest.fixture(params=["t.csv", "t.parquet"])
    def write(self, request: pytest.FixtureRequest, server: S3Server) -> Write:
        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            if request.param == "t.csv":
                text = io.StringIO(newline="")
                csv.writer(text).writerows([names, *rows])
                content = text.getvalue().encode()
            else:
                sink = io.BytesIO()
                pq.write_table(table_of(names, rows), sink)
                content = sink.getvalue()
            return TableSource(server.put(f"laws/{request.param}", content), FORM)

        return write


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"b": ["x", None] * rows, "a": range(2 * rows)}), sink, row_group_size=100
    )
    return sink.getvalue()


def refusal(source: str) -> str:
    with pytest.raises(InputError) as refused:
        check_header(source, ["a", "b"], FORM)
    assert SECRET not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "files",
    [
        {"t.csv": ROWS},
        {"t.csv": b"\xef\xbb\xbf" + ROWS},
        {"t.tsv": b"a\tb\n1\tx\n"},
        {"t.parquet": parquet(600)},
        {"folder/p2.parquet": parquet(3), "folder/p1.PARQUET": parquet(2), "folder/note.txt": b"-"},
    ],
    ids=["csv", "byte order mark", "tsv", "parquet", "folder"],
)
def test_the_same_rows_as_on_a_disk(
    files: dict[str, bytes], server: S3Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Columns, rows and the bytes of the digest, of every form."""
    place = request.node.callspec.id.replace(" ", "-")
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        server.put(f"{place}/{name}", content)
    first = next(iter(files))
    name = first.rpartition("/")[0] or first
    local, remote = (
        TableSource(source, FORM)
        for source in (str(tmp_path / name), f"s3://tables/{place}/{name}")
    )
    assert remote.table(["b", "a"]) == local.table(["b", "a"])
    assert list(remote.chunks()) == list(local.chunks())
    assert source_columns(remote.name, FORM) == source_columns(local.name, FORM)
    check_header(remote.name, ["a"], FORM)


def test_an_object_that_is_replaced_is_noticed(server: S3Server) -> None:
    """By its ETag, where size and second are the same."""
    source = TableSource(server.put("replaced.csv", b"a,b\n1,2\n"), FORM)
    before = source.state()
    assert source.state() == before
    server.put("replaced.csv", b"a,b\n1,3\n")
    assert source.state() != before


@pytest.mark.parametrize(
    ("change", "source", "words"),
    [
        ({}, "s3://tables/none.csv", "does not exist: no such bucket, or no such object"),
        ({}, "s3://nobody/t.csv", "does not exist: no such bucket, or no such object"),
        ({}, "s3://tables/plain/", "has 't.csv' as well, which is not read"),
        ({}, "s3://tables/plain/t.xlsx", "cannot be read as an .xlsx workbook"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "s3://tables/plain/t.csv",
            "S3 refuses it (ACCESS_DENIED)",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "s3://tables/plain/t.csv",
            "S3 cannot be reached",
        ),
        (
            {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
            "s3://tables/plain/t.parquet",
            "S3 cannot be reached",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://s3.example.org"},
            "s3://tables/plain/t.csv",
            "must begin with https://",
        ),
        (
            {"AWS_ENDPOINT_URL": f"ftp://u:{SECRET}@127.0.0.1"},
            "s3://tables/plain/t.csv",
            "must begin with https://",
        ),
        ({}, f"s3://u:{SECRET}@tables/t.csv", "source (s3://…) must be a path, s3://BUCKET/KEY"),
        (
            {},
            f"https://u:{SECRET}@example.org/t.csv",
            "source (https://…) must be a path, s3://BUCKET/KEY",
        ),
        ({}, "s3://tables", "source (s3://…) must be a path, s3://BUCKET/KEY"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(
    change: dict[str, str],
    source: str,
    words: str,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("t.csv", "t.xlsx"):
        server.put(f"plain/{name}", b"a,b\n1,2\n")
    for name, value in change.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
    parts._file_system.cache_clear()
    assert words in refusal(source)


def test_s3_that_goes_away_is_told_from_a_broken_file(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be fetched is no part that is no Parquet."""
    source = server.put("away/t.parquet", parquet(3))
    monkeypatch.setattr(parts, "parts_of", lambda _: [parts.S3Object("tables/away/t.parquet")])
    monkeypatch.setattr("marginweave.sources.source.parts_of", parts.parts_of)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "S3 cannot be reached" in refusal(source)


def test_another_region_is_named() -> None:
    """As AWS answers, which moto does not: a redirection without a body."""
    told = OSError(
        "AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body."
    )
    assert "AWS_REGION" in str(parts.fault_of("s3://tables/t.csv", told))
    assert parts.fault_of("t.csv", OSError(2, "No such file")) is None


def test_a_pyarrow_without_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    parts._file_system.cache_clear()
    monkeypatch.delattr(pyarrow.fs, "S3FileSystem")
    assert "pip install" in refusal("s3://tables/t.csv")


def test_no_s3_without_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a table of this machine asks S3 nothing."""
    monkeypatch.setattr(parts, "_file_system", None)
    (tmp_path / "t.csv").write_bytes(ROWS)
    check_header(str(tmp_path / "t.csv"), ["a", "b"], FORM)


@given(scheme=st.from_regex(r"\A[A-Za-z][A-Za-z0-9+.-]{1,8}\Z"), rest=st.text(min_size=1))
@example(scheme="https", rest="x" * 300)
def test_no_url_is_taken_for_a_path_or_repeated(scheme: str, rest: str) -> None:
    """Whatever stands behind the scheme; of s3 a bucket and a key are let through, without a user or a password."""
    url = f"{scheme}://u:{SECRET}@{rest}"
    with pytest.raises(ValueError, match="must be a path") as refused:
        check_place(url)
    assert SECRET not in str(refused.value)


@given(st.lists(st.from_regex(r"\A[^/:]{1,9}\Z"), min_size=1))
def test_a_path_stays_a_path(names: list[str]) -> None:
    for path in ("/".join(names), "/" + "/".join(names), "./" + "/".join(names)):
        assert not path.strip() or check_place(path) == path
        assert is_path(path) or path.startswith("example:")
