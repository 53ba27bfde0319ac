"""Audits the whole ledger: chain, seals, rules and caps at every row. Needs no key to check the chain."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, select

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import Event, ReleaseRecord
from marginweave.base.errors import AuditError, BudgetError, DamagedLedger, InputError
from marginweave.ledger.connection import connected, engine_for
from marginweave.ledger.creation import check_format
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.location import LedgerLocation, opening_command
from marginweave.ledger.replay import Replay, Standing
from marginweave.ledger.tables import ACCOUNTS, EVENTS, check_chain, event_of, guards_fault


class Anchor(BaseModel):
    """An anchor: number and hash of one row. The hash covers every row before it, and reveals no value of a table."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal[1]
    seq: int = Field(gt=0)
    hash: str = Field(pattern="^[0-9a-f]{64}$")

    def to_json(self) -> str:
        """Return the anchor as one line of JSON; `from_json` reads it back."""
        return json.dumps(self.model_dump()) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Anchor:
        """Return the anchor that `to_json` wrote.

        Raises:
            InputError: something else.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise InputError("the anchor must be what `marginweave ledger anchor` wrote") from None


@dataclass(frozen=True, kw_only=True)
class AuditedLedger:
    """An audited ledger. `unchecked` counts the rows whose seal could not be checked, because the key is missing.

    `course` lists for each account its states and sums, each with the row from which on it holds.
    """

    rows: tuple[Mapping[str, Any], ...]
    events: tuple[Event, ...]
    accounts: Mapping[str, Account]
    releases: Mapping[str, ReleaseRecord]
    course: Mapping[str, Sequence[Standing]]
    unchecked: int

    @property
    def anchor(self) -> Anchor:
        """Anchor of the newest row."""
        return Anchor(format=1, seq=self.rows[-1]["seq"], hash=self.rows[-1]["row_hash"])


def audit_ledger(
    location: LedgerLocation, key: LedgerKey, anchor: Anchor | None = None
) -> AuditedLedger:
    """Check every row of the ledger: its place, its seal if `key` has its secret, its content, and every cap.

    Raises:
        AuditError: the first fault, naming its row.
        BudgetError: there is no ledger, or one of another version.
    """
    accounts, rows = _read(location)
    if not rows:
        raise AuditError("the ledger is empty: it has lost its rows")
    unchecked = _check_rows(rows, key)
    replay = Replay()
    events = tuple(map(_event, rows))
    for row, event in zip(rows, events, strict=True):
        replay.step(row["seq"], event)
    replay.finish()
    if accounts != replay.opened:
        raise AuditError("the table of accounts is not what the rows of the ledger opened")
    if anchor is not None:
        _check_anchor(rows, anchor)
    return AuditedLedger(
        rows=tuple(rows),
        events=events,
        accounts=replay.accounts,
        releases=replay.releases,
        course=replay.course,
        unchecked=unchecked,
    )


def _read(location: LedgerLocation) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the table of accounts (dataset → row that opened it) and all rows, oldest first."""
    if isinstance(location, Path) and not location.is_file():
        raise BudgetError(f"there is no ledger at {location}; open an account: {opening_command()}")
    has_format = False
    try:
        with connected(engine_for(location), location, writing=False) as connection:
            check_format(connection, location)
            has_format = True
            _check_database(connection)
            accounts = {
                str(row.dataset): row.opened for row in connection.execute(select(ACCOUNTS))
            }
            rows = connection.execute(select(EVENTS).order_by(EVENTS.c.seq)).mappings()
            return accounts, [dict(row) for row in rows]
    except BudgetError as error:
        if has_format or isinstance(error, DamagedLedger):
            raise AuditError(str(error)) from None
        raise


def _check_database(connection: Connection) -> None:
    """Refuse damage that no row shows: indices that disagree with their table, and guards that were removed."""
    if connection.dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        # a row with bytes that are not UTF-8 must be read, too
        if isinstance(driver, sqlite3.Connection):
            driver.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        result = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if result != "ok":
            raise AuditError(
                "the ledger's file is damaged: its tables and indices do not fit together"
            )
    fault = guards_fault(connection)
    if fault is not None:
        raise AuditError(fault)


def _check_rows(rows: Sequence[Mapping[str, Any]], key: LedgerKey) -> int:
    """Check the chain; return the number of rows whose seal could not be checked, because the key is missing."""
    try:
        check_chain(map(_checked_texts, rows), key, auditing=True)
    except BudgetError as error:
        raise AuditError(str(error)) from None
    return len(rows) if key.secret is None else 0


def _checked_texts(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `row`, or refuse it if a column is not a text: then it was changed."""
    values = [value for name, value in row.items() if name != "seq" and value is not None]
    if not all(map(_is_text, values)):
        raise AuditError(f"row {row['seq']} of the ledger was changed after it was written")
    return row


def _is_text(value: object) -> bool:
    """Return whether `value` is a text without bytes that are not UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # such bytes, as `_check_database` lets them through
        return False
    return True


def _event(row: Mapping[str, Any]) -> Event:
    """Return the event of a row, or refuse a row that no ledger writes."""
    try:
        return event_of(row)
    except (ValueError, TypeError, ArithmeticError):
        raise AuditError(f"row {row['seq']} of the ledger says what no ledger writes") from None


def _check_anchor(rows: Sequence[Mapping[str, Any]], anchor: Anchor) -> None:
    """Refuse a ledger without the anchored row."""
    if anchor.seq > len(rows):
        raise AuditError(
            f"the ledger ends at row {len(rows)}, before the anchored row {anchor.seq}: rows were removed, or a "
            "backup was restored"
        )
    if rows[anchor.seq - 1]["row_hash"] != anchor.hash:
        raise AuditError(
            f"row {anchor.seq} of the ledger is not the one that was anchored: it has another history"
        )
