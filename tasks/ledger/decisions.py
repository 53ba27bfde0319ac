"""Decisions that are written down: another key for new rows, and one source under two accounts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.ledger.books import accounts_of
from marginweave.tasks.ledger.checks import account_in
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.key import KEY_BYTES, KEY_VARIABLE, environment_key, key_file
from marginweave.tasks.ledger.keyring import Keyring, key_id
from marginweave.tasks.ledger.location import LedgerLocation, opening_command


class Decisions(LedgerCore):
    """The methods of the ledger that change its key or what counts as the same people."""

    def rotate_key(self, reason: str, *, actor: str, environment: Mapping[str, str] = os.environ) -> str:
        """Seal all rows from the next one on with a new key, and return the id of that key.

        The new key is durable before the row that names it is committed, and the row decides: whichever step is the last,
        the ledger and the keys on disk fit together. Old keys stay in the ring, where they verify old rows; the first stays
        the root of the digests of sources and checkpoints.

        Raises:
            InputError: no reason, or MARGINWEAVE_LEDGER_KEY without a key that was not used yet at its end.
            StageError: the key file cannot be written; the old key goes on.
        """
        _check_reason(reason, "the key is rotated")
        with self._writing() as journal:
            events = journal.all_events()
            keys = _with_unused_key(self._key, events, self.location, environment)
            old, new = journal.sealing_key(), key_id(keys.keys[-1])
            body = {"old": old, "new": new, "reason": reason}
            entry = Event(kind=EventKind.KEY_ROTATED, actor=actor, created=now(), body=body)
            replace(journal, key=keys).append(entry, sealed_by=new)
        self._key = keys
        return new

    def alias(self, dataset: str, other: str, reason: str, *, actor: str) -> None:
        """Decide that sources released under `other` may be released under `dataset` as well; again it does nothing.

        The two accounts do not see each other's spending: whoever is in both is protected by the sum of their totals.

        Raises:
            BudgetError: one of the accounts is not open.
            InputError: the same account twice, or no reason.
        """
        _check_reason(reason, "one source may have two accounts")
        if dataset == other:
            raise InputError(f"other ({other}) must be another account than {dataset}")
        with self._writing() as journal:
            accounts = accounts_of(journal.all_events())
            account_in(accounts, other, opening_command(other))
            if other not in account_in(accounts, dataset, opening_command(dataset)).aliases:
                body = {"other": other, "reason": reason}
                journal.append(Event(kind=EventKind.ALIASED, actor=actor, created=now(), account=dataset, body=body))


def _with_unused_key(
    present: Keyring, events: Sequence[Event], location: LedgerLocation, environment: Mapping[str, str]
) -> Keyring:
    """The ring with a key at its end that has sealed nothing yet: the environment's, an interrupted rotation's, or new."""
    used = {key_id(present.root), *(event.body["new"] for event in events if event.kind == EventKind.KEY_ROTATED)}
    if key_id(present.keys[-1]) not in used:
        return present
    if environment_key(environment) is not None:
        raise InputError(
            f"{KEY_VARIABLE} must hold all keys, oldest first with commas between, and a new one at its end "
            f"({2 * KEY_BYTES} random hexadecimal digits) to rotate to"
        )
    keys = Keyring((*present.keys, secrets.token_bytes(KEY_BYTES)))
    replace_file(key_file(location), "".join(f"{key.hex()}\n" for key in keys.keys).encode(), PRIVATE_MODE)
    return keys


def _check_reason(reason: str, what: str) -> None:
    if not reason.strip():
        raise InputError(f"reason must say why {what}")
