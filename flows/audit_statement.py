"""What privacy.json says of a release and of its account, against the rows of the whole ledger."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from marginweave.flows.handover_statement import Fault, check_statement
from marginweave.schemas.errors import AuditError
from marginweave.schemas.ledger import ReleaseRecord, Spent, State
from marginweave.tasks.budget.ledger.admission import account_total
from marginweave.tasks.budget.ledger.audit import AuditedLedger
from marginweave.tasks.budget.ledger.totals import account_totals

_ENDED = frozenset({"SUBMITTED", "PUBLISHED"})


@dataclass(frozen=True)
class StatementAudit:
    """Compares statements with the rows of an audited ledger, which are sorted once."""

    audited: AuditedLedger

    def check(self, content: bytes, record: ReleaseRecord) -> None:
        """Refuse a privacy.json that says anything else of the release, or of its account when it was published, than the rows.

        The account's totals are compared where this version reserved the release: 0.1.0 had other sums.

        Raises:
            AuditError: the first thing that differs.
        """
        try:
            told = json.loads(content)
            check_statement(
                told, [*self._rows[None, record.dataset], *self._rows[record.release, None]], record.release
            )
            if record.program is not None:
                self._check_account(told["account"], record)
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

    def _check_account(self, told: Mapping[str, Any], record: ReleaseRecord) -> None:
        """The totals have to be those at some row between last draw and publication: others may have drawn meanwhile."""
        rows = self._rows[record.release, None]
        drawn = max(row["seq"] for row in rows if row["draw"] is not None)
        ended = min(row["seq"] for row in rows if row["kind"] in _ENDED and row["seq"] > drawn)
        epsilon, delta = (Decimal(repr(told[name])) for name in ("cap_epsilon", "delta"))
        account = replace(self.audited.accounts[record.dataset], epsilon=epsilon, delta=delta)
        totals = [account_totals(account_total(account, spent)) for spent in self._spent(record.dataset, drawn, ended)]
        present = self.audited.accounts[record.dataset]
        changed = (
            {"box"} if (present.epsilon, present.delta) != (epsilon, delta) else frozenset[str]()
        )  # another cap since
        if not any(all(told[name] == total[name] for name in total.keys() - changed) for total in totals):
            raise Fault("the totals of the account in privacy.json are not those of the rows when it was published")
        lost = {
            (other.release, draw.replaces or draw.name)
            for other in self.audited.releases.values()
            if other.dataset == record.dataset
            for draw in other.draws
            if draw.state == State.CHARGED_LOST
        }
        if any((row["release"], row["draw"]) not in lost for row in told["lost_draws"]):
            raise Fault("a lost draw in privacy.json is in no row")

    def _spent(self, dataset: str, drawn: int, ended: int) -> Iterator[Spent]:
        course = self.audited.spent.get(dataset, ())
        yield from [spent for seq, spent in course if seq <= drawn][-1:]
        yield from [spent for seq, spent in course if drawn < seq < ended]
