"""`marginweave plan` and `audit`: what is known of a release without reading the data, and what its mechanisms lose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Home, Source, command, out, print_wide, table_of, warn_of_former_keys
from marginweave.flows.orchestration.environment import home_directory, prepare_environment
from marginweave.schemas.errors import EXIT_FAILED, InputError
from marginweave.tasks.checkpoint.files import at_place, replace_file

if TYPE_CHECKING:
    from marginweave.flows.plan.schedule import Schedule
    from marginweave.flows.run.request import Request

_Configs = Annotated[
    list[Path], typer.Argument(metavar="CONFIG [CONFIG]", help="The YAML file of the release; two to compare.")
]
_Schedule = Annotated[
    str | None, typer.Option(metavar="CRON", help="When runs are planned: how long does the account last?")
]
_Timezone = Annotated[str | None, typer.Option(help="Of the schedule, such as Europe/Berlin.", show_default="UTC")]
_Rows = Annotated[int | None, typer.Option(min=1, help="The number of rows, which must be public: relative errors.")]


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
    drawn, spent = _cells(request, rows)
    beside = ("of all rows", "of a mean count") if rows else ()
    table = table_of("draw", "noise", "share of budget", "typical error", *beside, "least count")
    for name, cells in drawn.items():
        table.add_row(name, *cells)
    out.print(_heading(request))
    print_wide(table)
    out.print(f"All draws together: epsilon {spent:.6g} at delta {request.configuration.privacy.delta:g}")


def _compare(one: Request, other: Request, rows: int | None) -> None:
    """Both plans in one table, a line a draw of either; what is left empty the other has alone."""
    from marginweave.flows.run.continuity import configuration_differences

    plans, sides = [], ("A", "B")
    for side, request in zip(sides, (one, other), strict=True):
        drawn, spent = _cells(request, rows)
        plans.append(drawn)
        out.print(f"{side}: {_heading(request)}; all draws together epsilon {spent:.6g}")
    places = configuration_differences(one.configuration, other.configuration)
    out.print(f"They differ in {', '.join(places)}" if places else "They are the same configuration")
    heads = ("noise", "share", "error", *(("of all rows", "of a mean count") if rows else ()), "least count")
    shown = [place for place, head in enumerate(heads) if head != "of all rows"]
    table = table_of("draw", *(f"{side}: {heads[place]}" for side in sides for place in shown))
    for name in dict.fromkeys((*plans[0], *plans[1])):
        both = (drawn.get(name, ("",) * len(heads)) for drawn in plans)
        table.add_row(name, *(cells[place] for cells in both for place in shown))
    print_wide(table)


def _cells(request: Request, rows: int | None) -> tuple[dict[str, tuple[str, ...]], float]:
    """For each draw noise, share, typical error, the same beside all `rows` and beside a mean count, threshold; and epsilon."""
    from marginweave.flows.plan.accuracy import relative_errors
    from marginweave.flows.plan.noise import forecast

    drawn, spent = forecast(request.configuration)
    errors = relative_errors(request.configuration, rows) if rows else {}
    return {
        row.name: (
            *(row.noise, f"{100 * row.share:.1f} %", row.error),
            *(errors.get(row.name, ("", "")) if rows else ()),
            row.threshold,
        )
        for row in drawn
    }, spent


def _heading(request: Request) -> str:
    configuration, privacy = request.configuration, request.configuration.privacy
    return (
        f"{configuration.dataset}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
        f"one {privacy.unit_words}, {privacy.neighbors}, accountant {privacy.accountant}"
    )


def _tell(request: Request, schedule: Schedule | None, rows: int | None, name: str) -> None:
    """What is said in sentences: noise, preparation, records, ledger, and how long the account lasts."""
    from marginweave.flows.plan import account, accuracy, noise

    forecasts = noise.combinations_forecast, noise.noise_forecast, noise.rounds_forecast, noise.preparation_forecast
    lines = [line for forecast in (*forecasts, accuracy.method_forecast) for line in forecast(request.configuration)]
    lines += accuracy.error_forecast(request.configuration, rows)
    lines += [*account.ledger_forecast(request), *account.policy_forecast(request)]
    if schedule is not None:
        from marginweave.flows.plan.schedule import schedule_forecast

        lines += schedule_forecast(request, schedule)
    for line in lines:
        out.print(f"{name}{line}")


@command
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="Whose parameters are audited [default: examples with power]."),
    ] = None,
    to: Annotated[Path, typer.Option(help="The page to write, with a plot.")] = Path("audit.html"),
) -> None:
    """Measure what every mechanism and the pipelines lose, on made-up tables; exit 1 where a claim is exceeded.

    Reads no data, writes to no ledger and needs no key. With CONFIG, noise and shares are those of that release; where
    epsilon is small, little can be measured, and the intervals say so.

    Example: `marginweave audit`, or `marginweave audit census.yaml --to census-audit.html`
    """
    from marginweave.flows.audit.examples import examples
    from marginweave.flows.audit.suite import audit as audit_configuration
    from marginweave.tasks.accounting.plan.resolve import load_configuration
    from marginweave.tasks.empirical.findings import refuted
    from marginweave.tasks.publish.pages import ABOUT, VERDICTS, render_audit

    if to.is_dir() or not to.parent.is_dir():
        raise InputError(f"--to ({to}) must be a file in a folder that exists")
    loaded = None if config is None else load_configuration(config)
    audited = examples() if loaded is None else {loaded.dataset: loaded}
    out.print(ABOUT)
    findings = {}
    for name, configuration in audited.items():
        findings[name] = list(audit_configuration(configuration))
        table = table_of(name, "of", "claim", "measured", "trials", "verdict")
        for found in findings[name]:
            interval = f"{found.measured.low:.3f} to {found.measured.high:.3f}"
            cells = (found.quantity, f"{found.claim:.4g}", interval, f"{found.trials:,}", VERDICTS[found.verdict])
            table.add_row(found.name, *cells)
        print_wide(table)
        out.print("")
    with at_place(to, "written"):
        replace_file(to, render_audit(findings))
    out.print(f"Written to {to}")
    if any(map(refuted, findings.values())):
        raise typer.Exit(EXIT_FAILED)
