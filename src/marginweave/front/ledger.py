"""The budget ledger to be read: accounts, what was spent, and what fits, as frames. Nothing is written.

DP: from public facts alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginweave.base.errors import must_be
from marginweave.base.shown import Shown
from marginweave.runs.home import home_directory

if TYPE_CHECKING:
    import pandas as pd

    from marginweave.configuration.release import Configuration
    from marginweave.ledger import Ledger as OpenLedger


class Ledger(Shown):
    """A ledger that is open for reading; made by `open`."""

    def __init__(self, opened: OpenLedger) -> None:
        self._opened = opened

    def __repr__(self) -> str:
        return f"Ledger at {self._opened.location}: see accounts, spent(dataset) and fits(configuration)"

    @classmethod
    def open(cls, location: str | Path | None = None, home: str | Path | None = None) -> Ledger:
        """The ledger in a file or at a URL of PostgreSQL; by default the one of MARGINWEAVE_LEDGER, or of the user.

        It is compared with what the runs of the home have seen of it.

        Raises:
            BudgetError: there is no ledger or key, or it lacks what the runs of the home have seen of it.
            InputError: the location is no path and no such URL.
        """
        from marginweave.ledger import Ledger as OpenLedger
        from marginweave.ledger import Witness, ledger_location
        from marginweave.ledger.location import LEDGER_VARIABLE

        must_be("location", location, (str, Path, type(None)), 'Ledger.open("ledger.sqlite")')
        named = location if location is None or "://" in str(location) else str(Path(location).absolute())
        place = ledger_location({**os.environ, **({} if named is None else {LEDGER_VARIABLE: str(named)})})
        seen = Witness(home_directory(home))
        return cls(OpenLedger.open(place, witness=seen))

    @property
    def accounts(self) -> pd.DataFrame:
        """A line an account: what is spent of its cap, and what epsilon one more release of Gaussian draws may have."""
        import pandas as pd

        from marginweave.ledger.boxes import epsilon_left, is_closed

        rows = []
        for total in self._opened.accounts.totals():
            account, spent = total.account, total.spent
            left, cap = 0.0 if is_closed(account, spent) else epsilon_left(total), float(account.epsilon)
            amounts = total.epsilon, left, cap, float(account.delta)
            rows.append((account.dataset, *amounts, spent.releases, account.unit, account.neighbors))
        names = ["dataset", "epsilon_spent", "epsilon_left", "epsilon_cap", "delta", "releases", "unit", "neighbors"]
        return pd.DataFrame(rows, columns=names).set_index("dataset")

    def spent(self, dataset: str) -> pd.DataFrame:
        """A line a release of an account, the newest first: when, what it states, and what it is charged.

        Raises:
            BudgetError: no such account.
        """
        import pandas as pd

        total = self._opened.accounts.total(dataset)
        rows = []
        for record in self._opened.releases.newest(dataset, total.spent.ever_reserved):
            charged = float(record.charged.mu2), float(record.charged.plain.epsilon)
            stated = float(record.epsilon), float(record.delta)
            rows.append((record.run, record.created, *stated, *charged, len(record.draws)))
        names = ["run", "created", "epsilon", "delta", "mu2_charged", "plain_epsilon_charged", "draws"]
        return pd.DataFrame(rows, columns=names).set_index("run")

    def fits(self, *configurations: Mapping[str, Any] | Configuration) -> pd.DataFrame:
        """A line a configuration, by the name of its run: whether one more release of it fits, and what is spent then.

        Raises:
            BudgetError: its dataset has no account.
            InputError: a configuration breaks a rule.
        """
        import pandas as pd

        from marginweave.configuration.load import configuration_of
        from marginweave.configuration.release import Configuration
        from marginweave.forecast.account import account_refusal
        from marginweave.measurements.split import plan_budget

        rows = {}
        for given in configurations:
            must_be("configuration", given, (Mapping, Configuration), 'fits(Configuration.from_yaml("visits.yaml"))')
            resolved = given if isinstance(given, Configuration) else configuration_of(given)
            plan, accounts = plan_budget(resolved).prices, self._opened.accounts
            after, has_room = accounts.forecast(resolved.dataset, plan)
            account_answer = account_refusal(resolved, accounts.total(resolved.dataset), has_room)
            refusal = "" if account_answer is None else str(account_answer)
            policy = accounts.period_forecast(resolved.dataset, plan, datetime.now(UTC))
            if not refusal and policy is not None and not policy.fits:
                refusal = f"the policy of this {policy.policy.per} has no room for it"
            asked = {"dataset": resolved.dataset, "epsilon": resolved.privacy.epsilon}
            rows[resolved.default_run] = {**asked, "epsilon_after": after, "fits": not refusal, "refusal": refusal}
        return pd.DataFrame.from_dict(rows, orient="index")
