"""Reads the bytes of a source for its keyed digest, and the examples, which are tables of installed packages.

Neither imports Arrow before there is a table: a finished run is recognized by the digest alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.sources.parts import parts_of, reading

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 1 << 20


def content_of(source: str) -> Iterator[bytes]:
    """Yield the bytes of a source, for a keyed digest; the parts of a folder in the order of their names.

    Every part is preceded by its length, so that moving bytes from one part to the next changes the digest.
    """
    if source.startswith(EXAMPLE_PREFIX):
        yield from _example_content(source)
        return
    with reading(source):
        for part in parts_of(source):
            yield part.size.to_bytes(8, "big")
            with part.open() as file:
                while chunk := file.read(_CHUNK):
                    yield chunk


EXAMPLES = ("affairs",)


def _example_content(source: str) -> tuple[bytes, bytes]:
    """Return the bytes of an example, which are its table as an Arrow stream, preceded by their length."""
    import pyarrow as pa

    example = read_example(source)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, example.schema) as writer:
        writer.write_table(example)
    return sink.tell().to_bytes(8, "big"), sink.getvalue()


def read_example(source: str) -> pa.Table:
    """Return the table of the source `example:NAME`; `affairs` is the survey of Fair (1978), 6366 x 9, from statsmodels.

    Raises:
        InputError: no such example, or statsmodels is not installed.
    """
    if source.removeprefix(EXAMPLE_PREFIX) not in EXAMPLES:
        names = ", ".join(EXAMPLE_PREFIX + name for name in EXAMPLES)
        raise InputError(f"source ({source}) must be one of {names}")
    import pyarrow as pa
    from pyarrow import csv

    # not imported: that takes longer than the counts of a small release
    package = find_spec("statsmodels")
    if package is None or not package.submodule_search_locations:
        raise InputError(
            "source (example:affairs) needs statsmodels: pip install 'marginweave[examples]'"
        )
    table = csv.read_csv(f"{package.submodule_search_locations[0]}/datasets/fair/fair.csv")
    return table.cast(pa.schema([(name, pa.float64()) for name in table.column_names]))
