"""Settings of the source, which are declared and never guessed, and of the computation of a release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.base.places import is_path, refuse_long, scheme_of
from marginweave.base.text_files import DELIMITERS
from marginweave.configuration.header_rows import Header, HeaderRows
from marginweave.configuration.number_texts import DecimalMark, NumberForm, Thousands
from marginweave.configuration.values import Confirm, FrozenModel, PositiveWhole, Whole, Words

_OBJECT = re.compile(r"s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[^/]+)+/?")


def check_place(source: str) -> str:
    """Return the place of a table; raises ValueError without repeating a URL, which may contain a password."""
    if not source.strip():
        raise MustError("not be empty")
    scheme = scheme_of(source)
    if scheme is not None and not _OBJECT.fullmatch(source):
        raise ValueError(
            f"({scheme}://…) must be a path, s3://BUCKET/KEY, or example:NAME. The environment of AWS says who may read "
            "S3; a table that is elsewhere is downloaded first"
        )
    if is_path(source):
        refuse_long("source", source)
    return source


LineCount = Annotated[Whole, Field(ge=0, le=1000)]


def _renames(value: Any) -> Any:
    if not isinstance(value, dict | None):
        raise MustError('be a mapping, such as {"Q1 (years)": age, column 3: ward}')
    return value


class SourceFile(FrozenModel):
    """One table: a text file, Parquet, Arrow or a sheet, a folder of Parquet parts, any of them on S3, or `example:NAME`.

    `encoding` and `delimiter` say how a text file is written, `decimal` and `thousands` how texts spell numbers. Written in a
    configuration as the path alone, or as `{file: people.csv, encoding: latin-1, delimiter: semicolon, decimal: comma}`.

    `sheet` names the sheet of a workbook. `skip` is the number of lines above the header, and `header` says which rows name the
    columns. `footer` is the number of lines below the table, of those that are not empty. All three are public numbers: what a
    row holds never decides whether it is read. `rename` has new names of columns, by the name in the header or by the place,
    such as `column 3`. `confirm: true` marks a layout that `marginweave init` guessed.
    """

    file: Annotated[str, AfterValidator(check_place)]
    encoding: Literal["utf-8", "utf-16", "latin-1", "windows-1252"] = "utf-8"
    delimiter: Literal["comma", "semicolon", "tab", "pipe"] | None = None
    decimal: DecimalMark = "dot"
    thousands: Thousands | None = None
    sheet: Words | None = None
    skip: LineCount = 0
    header: Header = HeaderRows()
    footer: LineCount = 0
    rename: Annotated[dict[str, Words] | None, BeforeValidator(_renames)] = None
    confirm: Confirm = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.confirm:
            raise UnconfirmedError(
                "was guessed from the file and waits for confirmation: does the table begin and end where it says? Correct "
                "it, and delete confirm: true"
            )
        if len(set(self.new_names.values())) < len(self.new_names):
            raise ValueError("has two columns of the same name in rename; names must differ")
        if self.decimal == self.thousands:
            raise ValueError(
                f"has the {self.decimal} before decimals and between thousands; declare another decimal or thousands"
            )
        return self

    @property
    def new_names(self) -> Mapping[str, str]:
        """New names of columns, by their names in the file or their places."""
        return self.rename or {}

    @property
    def layout_keys(self) -> tuple[str, ...]:
        """Keys that are declared of those that say where in the file the table is, and what its columns are called."""
        declared = {
            "sheet": self.sheet is not None,
            "header": self.header != HeaderRows(),
            "skip": self.skip > 0,
            "footer": self.footer > 0,
            "rename": bool(self.new_names),
        }
        return tuple(key for key, is_declared in declared.items() if is_declared)

    @property
    def separator(self) -> str | None:
        """Character between two fields; None where it is not declared, and the ending of the file's name decides."""
        return None if self.delimiter is None else DELIMITERS[self.delimiter]

    @property
    def numbers(self) -> NumberForm:
        """Spelling of numbers in the texts of the table."""
        return NumberForm(self.decimal, self.thousands)

    @model_serializer(mode="wrap")
    def _short(self, full: SerializerFunctionWrapHandler) -> str | dict[str, Any]:
        """Return only the path if nothing else is declared, so that both ways to write it have one canonical form."""
        fields: dict[str, Any] = full(self)
        declared = {key: value for key, value in fields.items() if (key, value) not in _USUAL}
        if declared == {"file": self.file, "encoding": "utf-8"}:
            return self.file
        return declared


_USUAL = (
    *(("delimiter", None), ("decimal", "dot"), ("thousands", None), ("sheet", None)),
    *(("skip", 0), ("header", 1), ("footer", 0), ("rename", None), ("confirm", None)),
)


def _source(value: Any) -> Any:
    if isinstance(value, list | tuple):
        raise MustError(
            "be one table, such as the one with a row a person; columns can be derived from others: tables"
        )
    return {"file": value} if isinstance(value, str) else value


Source = Annotated[SourceFile, BeforeValidator(_source)]


_SIZE = re.compile(r"[\d.]+\s*[A-Za-z]*")
_LEAST_MEMORY = 256_000_000
_MOST_PARTITIONS = 4096


def _only_size(value: object) -> object:
    """Refuse a text that has more than a size (ValueError), as pydantic ignores the rest."""
    if isinstance(value, str) and not _SIZE.fullmatch(value.strip()):
        raise MustError("be a size such as 2GB")
    return value


def _enough(value: ByteSize) -> ByteSize:
    if value < _LEAST_MEMORY:
        raise MustError("be at least 256MB")
    return value


Memory = Annotated[ByteSize, BeforeValidator(_only_size), AfterValidator(_enough)]
Partitions = Annotated[PositiveWhole, Field(le=_MOST_PARTITIONS)]


LOCAL = "local"


_PORT = r":[0-9]{1,5}"


_LAST_PORT = 65535


_TLS = re.compile(rf"tls://[A-Za-z0-9._-]+{_PORT}|tls://\[[0-9a-fA-F:]+\]{_PORT}")


_LOOPBACK = re.compile(rf"tcp://(127\.0\.0\.1|\[::1\]){_PORT}")


def _address(value: str | None) -> str | None:
    if value is None or value == LOCAL:
        return value
    if not _TLS.fullmatch(value) and not _LOOPBACK.fullmatch(value):
        raise ValueError(
            f"({value}) must be local, tls://host:port or tcp://127.0.0.1:port: "
            "what workers are sent is private, so that beyond this machine it is encrypted"
        )
    if not 1 <= int(value.rpartition(":")[2]) <= _LAST_PORT:
        raise ValueError(f"({value}) must have a port in [1, {_LAST_PORT}]")
    return value


class EngineSettings(FrozenModel):
    """Threads of this machine (`local`), or a Dask cluster.

    `dask` is `local`, for processes of this machine that exist only while a stage needs them, or the address of a scheduler:
    `tls://host:port` with the files `ca`, `cert` and `key` (relative to the configuration), or `tcp://127.0.0.1:port`.
    """

    dask: Annotated[str | None, AfterValidator(_address)] = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encrypted and None in self.files:
            raise ValueError(
                "needs ca, cert and key: the certificates by which client, scheduler and workers know each other"
            )
        if not self.encrypted and any(self.files):
            raise ValueError("has ca, cert or key, which only a scheduler at tls://host:port needs")
        return self

    @property
    def elsewhere(self) -> bool:
        """Return whether a cluster is named that must already be running."""
        return self.dask not in {None, LOCAL}

    @property
    def encrypted(self) -> bool:
        """Return whether a scheduler is named that is reached over TLS."""
        return self.dask is not None and self.dask.startswith("tls://")

    @property
    def files(self) -> tuple[str | None, str | None, str | None]:
        """Files of certificates, as they are declared: ca, cert and key."""
        return self.ca, self.cert, self.key

    @model_serializer(mode="wrap")
    def _short(self, full: SerializerFunctionWrapHandler) -> str | dict[str, Any]:
        return LOCAL if self.dask is None else full(self)


def _engine(value: Any) -> Any:
    if value == LOCAL:
        return {}
    if isinstance(value, dict) and value.get("dask") is not None:
        return value
    if isinstance(value, EngineSettings):
        return value
    raise MustError("be local, or a mapping with dask: local or the address of a scheduler")


Engine = Annotated[EngineSettings, BeforeValidator(_engine)]


class Execution(FrozenModel):
    """Settings that may change while a release is made: the release and its digest do not depend on them."""

    engine: Engine = EngineSettings()
    memory: Memory = ByteSize(2_000_000_000)
    partitions: Partitions = 16
