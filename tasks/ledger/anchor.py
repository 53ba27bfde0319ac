"""A point of the chain that is kept elsewhere: rows that are missing later, or a restored backup, are found against it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from marginweave.schemas.errors import InputError

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """Number and hash of one row. The hash covers every row before it, and no value of a table can be found from it."""

    seq: int
    hash: str

    def to_json(self) -> str:
        """The anchor as one line of JSON; `from_json` reads it back."""
        return json.dumps({"format": 1, **asdict(self)}) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Anchor:
        """The anchor that `to_json` wrote.

        Raises:
            InputError: something else.
        """
        try:
            content = json.loads(text)
            found = cls(seq=content["seq"], hash=content["hash"])
            fits = content["format"] == 1 and type(found.seq) is int and found.seq > 0
            if fits and _HASH.fullmatch(found.hash):
                return found
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError("the anchor must be what `marginweave ledger anchor` wrote")
