"""Compares the account.json of a published release with the rows of the whole ledger."""

from __future__ import annotations

import math
from pathlib import Path

from marginweave.base.errors import AuditError
from marginweave.ledger.published_account import PublishedAccount
from marginweave.released.account import AccountFile
from marginweave.verify.bundle_accounting import SLACK


def check_account_file(place: Path, content: bytes, published: PublishedAccount) -> None:
    """Refuse an account.json, at `place`, that differs from the rows up to the one that published the release.

    Epsilon may differ in its last digits, as another library computes them. If the row of the publication was adopted from a
    home, only dataset, unit and neighbors are compared: the ledger knows no more.

    Raises:
        AuditError: it differs, or is none.
    """
    try:
        account = AccountFile.from_json(content)
    except ValueError:
        raise AuditError(f"{place} is not what the program writes") from None
    expected = published.file
    if published.is_adopted:
        for name in ("dataset", "unit", "neighbors"):
            if getattr(account, name) != getattr(expected, name):
                raise AuditError(f"{place} is about another account than the rows")
        return
    epsilon = account.total.epsilon
    is_close = math.isclose(epsilon, expected.total.epsilon, rel_tol=SLACK)
    total = expected.total.model_copy(update={"epsilon": epsilon})
    if not is_close or account != expected.model_copy(update={"total": total}):
        raise AuditError(
            f"{place} is not what the rows say of the account when the release was published"
        )
