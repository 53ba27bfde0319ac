"""Where the table is and how its text is written: public facts about a file, declared and never guessed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, field_validator, model_serializer

from marginweave.schemas.configuration.values import FrozenModel

EXAMPLE_PREFIX = "example:"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}


class SourceFile(FrozenModel):
    """One table: a .csv, .tsv or Parquet file, a folder of Parquet parts, or `example:NAME`.

    `encoding` and `delimiter` say how a text file is written; Parquet has neither. Written in a configuration as the path
    alone, or as `{file: people.csv, encoding: latin-1, delimiter: semicolon}`.
    """

    file: str
    encoding: Literal["utf-8", "latin-1", "windows-1252"] = "utf-8"
    delimiter: Literal["comma", "semicolon", "tab", "pipe"] | None = None

    @field_validator("file")
    @classmethod
    def _file(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @property
    def separator(self) -> str | None:
        """The character between two fields where it is declared; else the ending of the file's name decides."""
        return None if self.delimiter is None else DELIMITERS[self.delimiter]

    @model_serializer(mode="wrap")
    def _short(self, full: SerializerFunctionWrapHandler) -> str | dict[str, Any]:
        """The path alone where nothing else is declared, so that both ways to write it have one canonical form."""
        plain = self.encoding == "utf-8" and self.delimiter is None
        return self.file if plain else full(self)


def _source(value: Any) -> Any:
    if isinstance(value, list | tuple):
        raise ValueError(
            "must be one table: link several tables before the release, into one row a person, and name the result"
        )
    return {"file": value} if isinstance(value, str) else value


Source = Annotated[SourceFile, BeforeValidator(_source)]
