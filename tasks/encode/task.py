"""Door of the stage: encode the clean table, checkpoint the codes."""

from __future__ import annotations

from marginweave.schemas.contracts import check_codes
from marginweave.tasks.budget.randomness import KeyedBits
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays, unpack_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.encode.codes import EncodedTable, encode_table
from marginweave.tasks.encode.complete import complete_table
from marginweave.tasks.references import RunReference, StageResult


@stage_task("encode")
def encode(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """The encoded table, one small unsigned integer a value; missing values imputed and the table resized where declared."""
    configuration = reference.resolved

    def compute() -> bytes:
        key = reference.key_file.read_bytes()
        table = encode_table(
            unpack_table(reference.load(preprocessed)), configuration, KeyedBits(key=key, purpose="encode")
        )
        table = complete_table(table, configuration, lambda purpose: KeyedBits(key=key, purpose=purpose))
        check_codes(configuration.attributes, table.sizes, table.codes, "encode", complete=True)
        return pack_encoded(table)

    return reference.checkpoint("encode", [preprocessed.digest, configuration.digest], compute)


def pack_encoded(table: EncodedTable) -> bytes:
    """Bytes of an encoded table. Private."""
    return pack_arrays({f"{j:05d}": codes for j, codes in enumerate(table.codes)}, {"labels": table.labels})


def unpack_encoded(payload: bytes) -> EncodedTable:
    """The table that `pack_encoded` packed."""
    arrays, meta = unpack_arrays(payload)
    labels = tuple(tuple(values) for values in meta["labels"])
    return EncodedTable(codes=tuple(arrays[f"{j:05d}"] for j in range(len(labels))), labels=labels)
