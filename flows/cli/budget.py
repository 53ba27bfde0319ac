"""`marginweave plan`: everything about a release that is known without reading the data."""

from __future__ import annotations

import os

from rich.table import Table

from marginweave.flows.cli.console import Config, Home, Source, command, out


@command
def plan(config: Config, source: Source = None, home: Home = None) -> None:
    """Show noise, thresholds, the split of the budget and what the ledger will say, without reading any data.

    Example: `marginweave plan deployments/examples/affairs.yaml`
    """
    from marginweave.schemas.load import load_configuration

    load_configuration(config)
    from marginweave.flows.environment import home_directory
    from marginweave.flows.forecast import (
        combinations_forecast,
        forecast,
        ledger_forecast,
        noise_forecast,
        preparation_forecast,
    )
    from marginweave.flows.request import read_request

    request = read_request(config, run=None, source=source, home=home_directory(home, os.environ))
    configuration = request.configuration
    privacy = configuration.privacy
    rows, spent = forecast(configuration)
    table = Table("draw", "noise", "share of budget", "typical error", "kept from", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.name, row.noise, f"{100 * row.share:.1f} %", row.error, row.threshold)
    out.print(f"{configuration.dataset}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
              f"one {privacy.unit_words}, {privacy.neighbors}, accountant {privacy.accountant}")  # fmt: skip
    out.print(table)
    out.print(f"All draws together: epsilon {spent:.6g} at delta {privacy.delta:g}")
    for told in (combinations_forecast, noise_forecast, preparation_forecast):
        for line in told(configuration):
            out.print(line)
    for line in ledger_forecast(request):
        out.print(line)
