"""What privacy.json says of a release and of its account, against the rows of the whole ledger."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marginweave.flows.verify.bundle_noise import Fault
from marginweave.flows.verify.bundle_statement import check_statement
from marginweave.schemas.errors import AuditError
from marginweave.schemas.ledger.records import ReleaseRecord, State
from marginweave.schemas.released.account import AccountStatement, AccountSums
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.ledger.audit import AuditedLedger
from marginweave.tasks.ledger.boxes import account_sums, account_total
from marginweave.tasks.ledger.replay import Standing

_ENDED = frozenset({"SUBMITTED", "PUBLISHED"})


@dataclass(frozen=True)
class StatementAudit:
    """Compares statements with the rows of an audited ledger, which are sorted once."""

    audited: AuditedLedger

    def check(self, content: bytes, record: ReleaseRecord) -> None:
        """Refuse a privacy.json that says anything else of the release, or of its account when it was published, than the rows.

        What the account was and had spent is compared where this version reserved the release: 0.1.0 had other sums.

        Raises:
            AuditError: the first thing that differs.
        """
        try:
            told = json.loads(content)
            check_statement(
                told, [*self._rows[None, record.dataset], *self._rows[record.release, None]], record.release
            )
            if record.program is not None:
                self._check_account(PrivacyStatement.from_json(content).account, record)
        except Fault as fault:
            raise AuditError(f"run {record.run}: {fault}") from None
        except (ValueError, KeyError, IndexError, TypeError, ArithmeticError, AttributeError):
            raise AuditError(f"run {record.run}: privacy.json is not what the program writes") from None

    @cached_property
    def _rows(self) -> Mapping[tuple[str | None, str | None], list[dict[str, Any]]]:
        """Rows by their release, or, where they are of none, by their account; bodies as objects."""
        found: dict[tuple[str | None, str | None], list[dict[str, Any]]] = defaultdict(list)
        for row in self.audited.rows:
            place = (row["release"], None) if row["release"] is not None else (None, row["account"])
            found[place].append({**row, "body": json.loads(row["body"])})
        return found

    def _check_account(self, told: AccountStatement, record: ReleaseRecord) -> None:
        """The totals have to be those at some row between last draw and publication: others may have drawn meanwhile."""
        rows = self._rows[record.release, None]
        drawn = max(row["seq"] for row in rows if row["draw"] is not None)
        ended = min(row["seq"] for row in rows if row["kind"] in _ENDED and row["seq"] > drawn)
        standing = self._standing(record.dataset, drawn, ended)
        said = AccountSums(**{name: value for name, value in told if name in AccountSums.model_fields})
        if all(said != account_sums(account_total(account, spent)) for _, account, spent in standing):
            raise Fault("the totals of the account in privacy.json are not those of the rows when it was published")
        lost = {
            (other.release, draw.replaces or draw.name)
            for other in self.audited.releases.values()
            if other.dataset == record.dataset
            for draw in other.draws
            if draw.state == State.CHARGED_LOST
        }
        if any((row.release, row.draw) not in lost for row in told.lost_draws):
            raise Fault("a lost draw in privacy.json is in no row")

    def _standing(self, dataset: str, drawn: int, ended: int) -> Iterator[Standing]:
        course = self.audited.course[dataset]
        yield from [now for now in course if now.seq <= drawn][-1:]
        yield from [now for now in course if drawn < now.seq < ended]
