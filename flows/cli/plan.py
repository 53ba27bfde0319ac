"""`marginweave plan` and `audit`: what is known of a release without reading the data, and what its mechanisms lose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Home, Source, out, print_wide, table_of, warn_of_former_keys
from marginweave.flows.orchestration.environment import prepare_environment
from marginweave.schemas.errors import EXIT_FAILED, InputError
from marginweave.tasks.checkpoint.files import at_place, replace_file

if TYPE_CHECKING:
    from marginweave.flows.plan.account import Schedule
    from marginweave.flows.plan.overview import PlannedRelease
    from marginweave.flows.plan.target import ErrorTarget
    from marginweave.flows.run.request import Request

_Configs = Annotated[
    list[Path], typer.Argument(metavar="CONFIG [CONFIG]", help="The YAML file of the release; two to compare.")
]
_Schedule = Annotated[
    str | None, typer.Option(metavar="CRON", help="When runs are planned: how long does the account last?")
]
_Target = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Find the smallest epsilon for an error: 'pairs within 5 %'.")
]
_Timezone = Annotated[str | None, typer.Option(help="Of the schedule, such as Europe/Berlin.", show_default="UTC")]


def plan(
    configs: _Configs,
    schedule: _Schedule = None,
    timezone: _Timezone = None,
    target: _Target = None,
    source: Source = None,
    home: Home = Path(),
) -> None:
    """Show noise, thresholds, the split of the budget and what the ledger will say, without reading any data.

    Two configurations are compared side by side. `--schedule` says which runs out first, epsilon or delta, and when.
    `--target` finds the smallest epsilon at which an error is expected: `pairs within 5 %` or `triples TVD .08` (mean TVD of
    the synthetic records), or `groups of 100 within 20` (records, in 19 of 20 releases).

    Example: `marginweave plan deployments/examples/affairs.yaml`,
    `marginweave plan census.yaml --schedule "0 3 1 */3 *" --timezone Europe/Berlin`, or
    `marginweave plan census.yaml --target "pairs within 5 %"`
    """
    if len(configs) > 2:
        raise InputError(f"one configuration is planned, or two are compared, and not {len(configs)}")
    if timezone is not None and schedule is None:
        raise InputError("--timezone is that of --schedule, which is not given")
    goal = None
    if target is not None:
        from marginweave.flows.plan.target import parse_target

        goal = parse_target(target)  # before all that takes longer
    for config in configs:
        warn_of_former_keys(config)
    from marginweave.flows.plan.overview import PlannedRelease
    from marginweave.flows.run.request import read_request

    prepare_environment(home)  # the schedule is Prefect's to read
    planned = None
    if schedule is not None:
        from marginweave.flows.plan.account import Schedule

        planned = Schedule(schedule, timezone or "UTC")
    requests = [read_request(config, run=None, source=source, home=home) for config in configs]
    said = [_target_lines(request, goal) for request in requests]
    plans = [PlannedRelease.of(request.configuration) for request in requests]
    if len(plans) == 1:
        _show(plans[0])
    else:
        _compare(plans[0], plans[1])
    for config, request, overview, lines in zip(configs, requests, plans, said, strict=True):
        name = f"{config}: " if len(configs) > 1 else ""
        _tell(request, overview, planned, name)
        for line in lines:
            out.print(f"{name}{line}")


def _target_lines(request: Request, goal: ErrorTarget | None) -> list[str]:
    if goal is None:
        return []
    from marginweave.flows.plan.target import target_forecast

    return list(target_forecast(request.configuration, goal))


def _show(planned: PlannedRelease) -> None:
    table = table_of("draw", *next(iter(planned.draws.values())))
    for name, cells in planned.draws.items():
        table.add_row(name, *cells.values())
    out.print(planned.heading)
    print_wide(table)
    out.print(planned.ending)


def _compare(one: PlannedRelease, other: PlannedRelease) -> None:
    """Both plans in one table, a line a draw of either; what is left empty the other has alone."""
    from marginweave.flows.run.continuity import configuration_differences

    plans = {"A": one, "B": other}
    for side, plan in plans.items():
        out.print(f"{side}: {plan.heading}; all draws together epsilon {plan.epsilon:.6g}")
    places = configuration_differences(one.configuration, other.configuration)
    out.print(f"They differ in {', '.join(places)}" if places else "They are the same configuration")
    rows = one.configuration.rows or other.configuration.rows
    heads = ["noise", "share of budget", "typical error", *(["of a mean count"] if rows else []), "least count"]
    shown = [head.removeprefix("typical ").removesuffix(" of budget") for head in heads]  # there are two of each
    table = table_of("draw", *(f"{side}: {head}" for side in plans for head in shown))
    for name in dict.fromkeys(name for plan in plans.values() for name in plan.draws):
        table.add_row(name, *(plan.draws.get(name, {}).get(key, "") for plan in plans.values() for key in heads))
    print_wide(table)


def _tell(request: Request, planned: PlannedRelease, schedule: Schedule | None, name: str) -> None:
    """What is said in sentences: noise, preparation, records, ledger, and how long the account lasts."""
    from marginweave.flows.plan.account import account_forecast
    from marginweave.flows.plan.cost import SERVER, slow_rules
    from marginweave.flows.plan.earlier import earlier_forecast
    from marginweave.flows.plan.sizes import size_forecast
    from marginweave.tasks.engine.local import available_cores

    for line in [*planned.notes, *earlier_forecast(request), *account_forecast(request, schedule)]:
        out.print(f"{name}{line}")
    if sized := size_forecast(request.configuration):
        out.print(
            f"{name}What it will be good for, by the distance (TVD) that noise alone would make, and of records as measured:"
        )
        table = table_of("rows", "counted", "single columns", "pairs of columns", "synthetic records", "time, memory")
        for row in sized:
            table.add_row(f"{row.rows:,}", *row[1:])
        print_wide(table)
        rules = slow_rules(request.configuration)
        server = f"{SERVER:.0f} s of it for Prefect's server where none runs (and .3 GB more)"
        out.print(
            f"Time on {available_cores()} idle cores like our benchmarks', {server}{rules}; more where others work"
        )
        if request.configuration.rows is None:
            out.print("If the number of rows is public, say rows: N in the configuration: auto then chooses by it")


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
    from marginweave.flows.audit.suite import audit as audit_configuration
    from marginweave.flows.audit.suite import examples
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
