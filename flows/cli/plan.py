"""`marginweave plan` and `audit`: what is known of a release without reading the data, and what its mechanisms lose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Home, Json, Source, out, print_json, print_wide, table_of, warn_of_former_keys
from marginweave.flows.orchestration.environment import prepare_environment
from marginweave.schemas.errors import EXIT_FAILED, InputError
from marginweave.tasks.checkpoint.files import at_place, replace_file

if TYPE_CHECKING:
    from marginweave.flows.plan.account import AccountForecast, Schedule
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
    *,
    schedule: _Schedule = None,
    timezone: _Timezone = None,
    target: _Target = None,
    source: Source = None,
    as_json: Json = False,
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
    from marginweave.flows.plan.account import Schedule
    from marginweave.flows.plan.overview import PlannedRelease
    from marginweave.flows.run.request import read_request

    prepare_environment(home)  # the schedule is Prefect's to read
    planned = None if schedule is None else Schedule(schedule, timezone or "UTC")
    requests = [read_request(config, run=None, source=source, home=home) for config in configs]
    said = [_target_lines(request, goal) for request in requests]
    parts = [
        (request, PlannedRelease.of(request.configuration), lines)
        for request, lines in zip(requests, said, strict=True)
    ]
    if as_json:
        print_json([_facts(*part, planned) for part in parts])
    else:
        _print_plans(configs, parts, planned)


def _print_plans(
    configs: list[Path], parts: list[tuple[Request, PlannedRelease, list[str]]], schedule: Schedule | None
) -> None:
    plans = [overview for _, overview, _ in parts]
    if len(plans) == 1:
        out.print(plans[0].heading)
        _print_draws({"": plans[0]})
        out.print(plans[0].ending)
    else:
        _compare(plans[0], plans[1])
    for config, (request, overview, lines) in zip(configs, parts, strict=True):
        name = f"{config}: " if len(configs) > 1 else ""
        fits = _tell(request, overview, schedule, name)
        for line in lines:
            out.print(f"{name}{line}")
        if fits and len(configs) == 1:
            out.print(f"Next: marginweave run {config}")


def _target_lines(request: Request, goal: ErrorTarget | None) -> list[str]:
    if goal is None:
        return []
    from marginweave.flows.plan.target import target_forecast

    return list(target_forecast(request.configuration, goal))


def _facts(
    request: Request, planned: PlannedRelease, target: list[str], schedule: Schedule | None
) -> dict[str, object]:
    """All that is shown of a plan, for programs."""
    from marginweave.flows.plan.sizes import size_forecast

    privacy = request.configuration.privacy
    asked: dict[str, object] = {
        "dataset": request.configuration.dataset,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
    }
    sizes = [row._asdict() for row in size_forecast(request.configuration)]
    notes, account = _notes(request, schedule)
    asked |= {"unit": privacy.unit_key, "fits": account.fits, "more_that_fit": account.more}
    return {**asked, "draws": planned.draws, "notes": [*planned.notes, *notes, *target], "rows": sizes}


def _notes(request: Request, schedule: Schedule | None) -> tuple[list[str], AccountForecast]:
    from marginweave.flows.plan.account import account_forecast
    from marginweave.flows.plan.earlier import earlier_forecast

    account = account_forecast(request, schedule)
    return [*earlier_forecast(request), *account.lines], account


def _print_draws(plans: dict[str, PlannedRelease]) -> None:
    """A line a draw of each plan; columns in which no draw has anything are left out."""
    rows = {(name, side): plan.draws[name] for side, plan in plans.items() for name in plan.draws}
    keys = [
        key
        for key in dict.fromkeys(key for cells in rows.values() for key in cells)
        if any(cells.get(key) for cells in rows.values())
    ]
    heads = [key.removeprefix("typical ").removesuffix(" of budget") for key in keys]
    table = table_of("draw", *([] if len(plans) == 1 else [""]), *heads)
    order = dict.fromkeys(name for name, _ in rows)
    for name, side in [(name, side) for name in order for side in plans if (name, side) in rows]:
        cells = [rows[name, side].get(key, "") for key in keys]
        table.add_row(name, *([] if len(plans) == 1 else [side]), *cells)
    print_wide(table)


def _compare(one: PlannedRelease, other: PlannedRelease) -> None:
    """Both plans in one table, a line a draw of either."""
    from marginweave.flows.run.continuity import configuration_differences

    plans = {"A": one, "B": other}
    for side, plan in plans.items():
        out.print(f"{side}: {plan.heading}; all draws together epsilon {plan.epsilon:.6g}")
    places = configuration_differences(one.configuration, other.configuration)
    out.print(f"They differ in {', '.join(places)}" if places else "They are the same configuration")
    _print_draws(plans)


def _tell(request: Request, planned: PlannedRelease, schedule: Schedule | None, name: str) -> bool:
    """What is said in sentences: noise, preparation, records, ledger, and how long the account lasts. Does the release fit?"""
    from marginweave.flows.plan.cost import SERVER, slow_rules
    from marginweave.flows.plan.sizes import size_forecast
    from marginweave.tasks.engine.local import available_cores

    notes, account = _notes(request, schedule)
    for line in (*planned.notes, *notes):
        out.print(f"{name}{line}")
    if sized := size_forecast(request.configuration):
        out.print(
            f"{name}What it will be good for, by the distance (TVD) that noise alone would make, and of records as measured:"
        )
        table = table_of("rows", "counted", "columns", "pairs", "synthetic records", "time, memory")
        for row in sized:
            table.add_row(f"{row.rows:,}", *row[1:-1])
        print_wide(table)
        for row in sized:
            if row.noise:
                out.print(f"{name}Pairs that are mostly noise with {row.rows:,} rows: {row.noise}")
        rules = slow_rules(request.configuration)
        server = f"{SERVER:.0f} s of it for Prefect's server where none runs (and .3 GB more)"
        out.print(
            f"Time on {available_cores()} idle cores like our benchmarks', {server}{rules}; more where others work"
        )
        if request.configuration.rows is None:
            out.print("If the number of rows is public, say rows: N in the configuration: auto then chooses by it")
    return account.fits is True


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
    from marginweave.tasks.publish.pages import ABOUT, VERDICTS, audit_verdict, render_audit

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
    out.print(f"{audit_verdict(findings)[1]} Written to {to}")
    if any(map(refuted, findings.values())):
        raise typer.Exit(EXIT_FAILED)
