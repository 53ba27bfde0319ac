"""Read access to the budget ledger: accounts, spent budgets, and releases that fit, as frames. Nothing is written.

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
    """A ledger that is open for reading; `open` makes one."""

    def __init__(self, opened: OpenLedger) -> None:
        self._opened = opened

    def __repr__(self) -> str:
        return f"Ledger at {self._opened.location}: see accounts, spent(dataset) and fits(configuration)"

    @classmethod
    def open(cls, location: str | Path | None = None, home: str | Path | None = None) -> Ledger:
        """Open the ledger in a file or at a URL of PostgreSQL; by default the one of MARGINWEAVE_LEDGER, or of the user.

        It is compared with the rows that the runs of the home have seen.

        Raises:
            BudgetError: there is no ledger or key, or it lacks what the runs of the home have seen of it.
            InputError: the location is no path and no such URL.
        """
        from marginweave.ledger import Ledger as OpenLedger
        from marginweave.ledger import Witness, ledger_location
        from marginweave.ledger.location import LEDGER_VARIABLE

        must_be("location", location, (str, Path, type(None)), 'Ledger.open("ledger.sqlite")')
        environment = dict(os.environ)
        if location is not None:
            is_url = "://" in str(location)
            environment[LEDGER_VARIABLE] = (
                str(location) if is_url else str(Path(location).absolute())
            )
        place = ledger_location(environment)
        witness = Witness(home_directory(home))
        return cls(OpenLedger.open(place, witness=witness))

    @property
    def accounts(self) -> pd.DataFrame:
        """Frame with a line for each account: its spent budget, and the epsilon that one more Gaussian release may have."""
        import pandas as pd

        from marginweave.ledger.boxes import epsilon_left, is_closed

        rows = []
        for total in self._opened.accounts.totals():
            account = total.account
            remaining_epsilon = 0.0 if is_closed(account, total.spent) else epsilon_left(total)
            rows.append(
                (
                    account.dataset,
                    total.epsilon,
                    remaining_epsilon,
                    float(account.epsilon),
                    float(account.delta),
                    total.spent.releases,
                    account.unit,
                    account.neighbors,
                )
            )
        names = [
            "dataset",
            "epsilon_spent",
            "epsilon_left",
            "epsilon_cap",
            "delta",
            "releases",
            "unit",
            "neighbors",
        ]
        return pd.DataFrame(rows, columns=names).set_index("dataset")

    def spent(self, dataset: str) -> pd.DataFrame:
        """Return a line for each release of an account, in the order of reservation: its time, its guarantee, and its charge.

        Raises:
            BudgetError: no such account.
        """
        import pandas as pd

        total = self._opened.accounts.total(dataset)
        rows = []
        for record in self._opened.releases.newest(dataset, total.spent.ever_reserved):
            guarantee = (float(record.epsilon), float(record.delta))
            charge = (float(record.charged.mu2), float(record.charged.plain.epsilon))
            rows.append((record.run, record.created, *guarantee, *charge, len(record.draws)))
        names = [
            "run",
            "created",
            "epsilon",
            "delta",
            "mu2_charged",
            "plain_epsilon_charged",
            "draws",
        ]
        return pd.DataFrame(rows, columns=names).set_index("run")

    def fits(self, *configurations: Mapping[str, Any] | Configuration) -> pd.DataFrame:
        """Return a line for each configuration, by the name of its run: whether a release fits, and the budget spent then.

        Raises:
            BudgetError: its dataset has no account.
            InputError: a configuration breaks a rule.
        """
        import pandas as pd

        from marginweave.configuration.load import configuration_of
        from marginweave.configuration.release import Configuration
        from marginweave.forecast.account import account_refusal
        from marginweave.measurements.split import plan_budget

        accounts = self._opened.accounts
        example = 'fits(Configuration.from_yaml("visits.yaml"))'
        rows = {}
        for configuration in configurations:
            must_be("configuration", configuration, (Mapping, Configuration), example)
            resolved = (
                configuration
                if isinstance(configuration, Configuration)
                else configuration_of(configuration)
            )
            dataset = resolved.dataset
            prices = plan_budget(resolved).prices
            epsilon_after, has_room = accounts.forecast(dataset, prices)
            account_answer = account_refusal(resolved, accounts.total(dataset), has_room)
            refusal = "" if account_answer is None else str(account_answer)
            policy = accounts.period_forecast(dataset, prices, datetime.now(UTC))
            if not refusal and policy is not None and not policy.fits:
                refusal = f"the policy of this {policy.policy.per} has no room for it"
            rows[resolved.default_run] = {
                "dataset": dataset,
                "epsilon": resolved.privacy.epsilon,
                "epsilon_after": epsilon_after,
                "fits": not refusal,
                "refusal": refusal,
            }
        return pd.DataFrame.from_dict(rows, orient="index")
