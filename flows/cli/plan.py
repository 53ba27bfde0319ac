"""`marginweave plan`: everything about a release that is known without reading the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from marginweave.flows.cli.console import Home, Source, command, out, warn_of_former_keys
from marginweave.flows.orchestration.environment import home_directory, prepare_environment
from marginweave.schemas.errors import InputError

if TYPE_CHECKING:
    from marginweave.flows.plan.schedule import Schedule
    from marginweave.flows.run.request import Request

# Numbers are not folded where there is no terminal, or a narrow one.
_WIDE = Console(highlight=False, markup=False, width=200)
_Configs = Annotated[
    list[Path], typer.Argument(metavar="CONFIG [CONFIG]", help="The YAML file of the release; two to compare.")
]
_Schedule = Annotated[
    str | None,
    typer.Option("--schedule", metavar="CRON", help="When runs are planned: how long does the account last?"),
]
_Timezone = Annotated[
    str | None, typer.Option("--timezone", help="Of the schedule, such as Europe/Berlin.", show_default="UTC")
]
_Rows = Annotated[
    int | None, typer.Option("--rows", min=1, help="The number of rows, which must be public: relative errors.")
]


@command
def plan(
    configs: _Configs,
    schedule: _Schedule = None,
    timezone: _Timezone = None,
    rows: _Rows = None,
    source: Source = None,
    home: Home = None,
) -> None:
    """Show noise, thresholds, the split of the budget and what the ledger will say, without reading any data.

    Two configurations are compared side by side. `--schedule` says which runs out first, epsilon or delta, and when.

    Example: `marginweave plan deployments/examples/affairs.yaml`, or
    `marginweave plan census.yaml --schedule "0 3 1 */3 *" --timezone Europe/Berlin`
    """
    from marginweave.tasks.accounting.plan.resolve import load_configuration

    if len(configs) > 2:
        raise InputError(f"one configuration is planned, or two are compared, and not {len(configs)}")
    if timezone is not None and schedule is None:
        raise InputError("--timezone is that of --schedule, which is not given")
    for config in configs:
        warn_of_former_keys(load_configuration(config))
    from marginweave.flows.run.request import read_request

    place = home_directory(home)
    prepare_environment(place)  # the schedule is Prefect's to read
    planned = None
    if schedule is not None:
        from marginweave.flows.plan.schedule import Schedule

        planned = Schedule(schedule, timezone or "UTC")
    requests = [read_request(config, run=None, source=source, home=place) for config in configs]
    if len(requests) == 1:
        _show(requests[0], rows)
    else:
        _compare(requests[0], requests[1], rows)
    for config, request in zip(configs, requests, strict=True):
        _tell(request, planned, rows, f"{config}: " if len(configs) > 1 else "")


def _show(request: Request, rows: int | None) -> None:
    from marginweave.flows.plan.noise import forecast

    configuration = request.configuration
    drawn, spent = forecast(configuration)
    errors = _errors(request, rows)
    beside = () if rows is None else ("of all rows", "of a mean count")
    table = Table("draw", "noise", "share of budget", "typical error", *beside, "least count", box=None, pad_edge=False)
    for row in drawn:
        relative = () if rows is None else errors.get(row.name, ("", ""))
        table.add_row(row.name, row.noise, f"{100 * row.share:.1f} %", row.error, *relative, row.threshold)
    out.print(_heading(request))
    _WIDE.print(table)
    out.print(f"All draws together: epsilon {spent:.6g} at delta {configuration.privacy.delta:g}")


def _compare(one: Request, other: Request, rows: int | None) -> None:
    """Both plans in one table, a line a draw of either; what is left empty the other has alone."""
    from marginweave.flows.plan.noise import forecast
    from marginweave.flows.run.continuity import configuration_differences

    plans, errors, sides = [], [], ("A", "B")
    for side, request in zip(sides, (one, other), strict=True):
        drawn, spent = forecast(request.configuration)
        plans.append({row.name: row for row in drawn})
        errors.append(_errors(request, rows))
        out.print(f"{side}: {_heading(request)}; all draws together epsilon {spent:.6g}")
    places = configuration_differences(one.configuration, other.configuration)
    out.print(f"They differ in {', '.join(places)}" if places else "They are the same configuration")
    heads = ("noise", "share", "error", *(("of a mean count",) if rows else ()), "least count")
    table = Table("draw", *(f"{side}: {head}" for side in sides for head in heads), box=None, pad_edge=False)
    for name in dict.fromkeys((*plans[0], *plans[1])):
        cells: list[str] = []
        for drawn_, relative in zip(plans, errors, strict=True):
            row = drawn_.get(name)
            beside = (relative.get(name, ("", ""))[1],) if rows else ()
            shown = () if row is None else (row.noise, f"{100 * row.share:.1f} %", row.error, *beside, row.threshold)
            cells += shown or ("",) * len(heads)
        table.add_row(name, *cells)
    _WIDE.print(table)


def _errors(request: Request, rows: int | None) -> dict[str, tuple[str, str]]:
    from marginweave.flows.plan.accuracy import relative_errors

    return {} if rows is None else relative_errors(request.configuration, rows)


def _heading(request: Request) -> str:
    configuration, privacy = request.configuration, request.configuration.privacy
    return (
        f"{configuration.dataset}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
        f"one {privacy.unit_words}, {privacy.neighbors}, accountant {privacy.accountant}"
    )


def _tell(request: Request, schedule: Schedule | None, rows: int | None, name: str) -> None:
    """What is said in sentences: noise, preparation, records, ledger, and how long the account lasts."""
    from marginweave.flows.plan.account import ledger_forecast, policy_forecast
    from marginweave.flows.plan.accuracy import error_forecast, method_forecast
    from marginweave.flows.plan.noise import (
        combinations_forecast,
        noise_forecast,
        preparation_forecast,
        rounds_forecast,
    )

    told = (combinations_forecast, noise_forecast, rounds_forecast, preparation_forecast, method_forecast)
    lines = [line for forecast in told for line in forecast(request.configuration)]
    lines += error_forecast(request.configuration, rows)
    lines += [*ledger_forecast(request), *policy_forecast(request)]
    if schedule is not None:
        from marginweave.flows.plan.schedule import schedule_forecast

        lines += schedule_forecast(request, schedule)
    for line in lines:
        out.print(f"{name}{line}")
