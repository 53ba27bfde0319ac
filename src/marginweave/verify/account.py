"""account.json of a published release against the rows of the whole ledger."""

from __future__ import annotations

import math

from marginweave.base.errors import AuditError
from marginweave.released.account import ACCOUNT, AccountFile
from marginweave.verify.bundle_accounting import SLACK


def check_account_file(run: str, content: bytes, booked: AccountFile) -> None:
    """Refuse an account.json that says anything else than the rows up to the one that published the release.

    Epsilon may differ in its last digits, as another library computes them.

    Raises:
        AuditError: it differs, or is none.
    """
    try:
        told = AccountFile.from_json(content)
    except ValueError:
        raise AuditError(f"run {run}: {ACCOUNT} is not what the program writes") from None
    total = booked.total.model_copy(update={"epsilon": told.total.epsilon})
    near = math.isclose(told.total.epsilon, booked.total.epsilon, rel_tol=SLACK)
    if not near or told != booked.model_copy(update={"total": total}):
        raise AuditError(f"run {run}: {ACCOUNT} is not what the rows say of its account when it was published")
