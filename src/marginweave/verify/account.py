"""account.json of a published release against the rows of the whole ledger."""

from __future__ import annotations

import math
from pathlib import Path

from marginweave.base.errors import AuditError
from marginweave.ledger.published_account import PublishedAccount
from marginweave.released.account import AccountFile
from marginweave.verify.bundle_accounting import SLACK


def check_account_file(place: Path, content: bytes, published: PublishedAccount) -> None:
    """Refuse an account.json that says anything else than the rows up to the one that published the release.

    Epsilon may differ in its last digits, as another library computes them. Where the row of the publication was adopted from a
    home, the ledger knows the account alone, and no more is compared.

    Raises:
        AuditError: it differs, or is none.
    """
    try:
        told = AccountFile.from_json(content)
    except ValueError:
        raise AuditError(f"{place} is not what the program writes") from None
    booked = published.file
    if published.is_adopted:
        same = (told.dataset, told.unit, told.neighbors) == (booked.dataset, booked.unit, booked.neighbors)
        if not same:
            raise AuditError(f"{place} is about another account than the rows")
        return
    total = booked.total.model_copy(update={"epsilon": told.total.epsilon})
    near = math.isclose(told.total.epsilon, booked.total.epsilon, rel_tol=SLACK)
    if not near or told != booked.model_copy(update={"total": total}):
        raise AuditError(f"{place} is not what the rows say of the account when the release was published")
