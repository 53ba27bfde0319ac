"""`marginweave plan`: show what is known of a release without reading the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.base.errors import InputError

from ..prefect.environment import prepare_environment
from .console import Home, Json, Source, out, print_json

if TYPE_CHECKING:
    from marginweave.forecast.overview import PlannedRelease
    from marginweave.forecast.sizes import SizeForecast
    from marginweave.forecast.target import ErrorTarget
    from marginweave.runs.request import Request

    from ..prefect.schedules import Schedule

_Configs = Annotated[
    list[Path],
    typer.Argument(metavar="CONFIG [CONFIG]", help="The YAML file of the release; two to compare."),
]
_Schedule = Annotated[
    str | None,
    typer.Option(metavar="CRON", help="When runs are planned: how long does the account last?"),
]
_Target = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Find the smallest epsilon for an error: 'pairs within 5 %'."
    ),
]
_Page = Annotated[
    Path | None, typer.Option(help="Write a page: error against epsilon, for a browser.")
]
_Timezone = Annotated[
    str | None, typer.Option(help="Of the schedule, such as Europe/Berlin.", show_default="UTC")
]


def plan(
    configs: _Configs,
    *,
    schedule: _Schedule = None,
    timezone: _Timezone = None,
    target: _Target = None,
    page: _Page = None,
    source: Source = None,
    as_json: Json = False,
    home: Home = Path(),
) -> None:
    """Show noise, thresholds, the split of the budget and what the ledger will say, without reading any data.

    Two configurations are compared side by side. `--schedule` says which runs out first, epsilon or delta, and when.
    `--target` finds the smallest epsilon at which an error is expected: `pairs within 5 %` or `triples TVD .08` (mean TVD of
    the synthetic records), or `groups of 100 within 20` (records, in 19 of 20 releases). `--page`
    writes one HTML file with this plan at several epsilons, which a slider chooses; it has no data.

    Example: `marginweave plan deployments/examples/affairs.yaml`,
    `marginweave plan census.yaml --schedule "0 3 1 */3 *" --timezone Europe/Berlin`,
    `marginweave plan census.yaml --target "pairs within 5 %"`, or
    `marginweave plan census.yaml --page plan.html`
    """
    if len(configs) > 2:
        raise InputError(
            f"one configuration is planned, or two are compared, and not {len(configs)}"
        )
    if timezone is not None and schedule is None:
        raise InputError("--timezone is that of --schedule, which is not given")
    if page is not None:
        _check_page(page, configs)
    goal = None
    if target is not None:
        from marginweave.forecast.target import parse_target

        goal = parse_target(target)  # before all that takes longer
    from marginweave.configuration.yaml_source import read_text

    for config in configs:
        # a file that is not there is refused before libraries are loaded
        read_text(config, "configuration")
    from marginweave.runs.request import read_request

    from ..prefect.schedules import Schedule

    prepare_environment(home)  # the schedule is Prefect's to read
    times = None if schedule is None else Schedule(schedule, timezone or "UTC")
    requests = [read_request(config, run=None, source=source, home=home) for config in configs]
    plans = [_planned(request, times) for request in requests]
    targets = [_target_lines(request, goal) for request in requests]
    if page is not None:
        _write_page(page, requests[0])
    if as_json:
        print_json([_facts(planned, lines) for planned, lines in zip(plans, targets, strict=True)])
    else:
        _print_plans(configs, plans, targets)
        if page is not None:
            from marginweave.forecast.plan_sentence import plan_sentence

            _say(str(plan_sentence("page.written", place=str(page))))


def _check_page(page: Path, configs: list[Path]) -> None:
    """Refuse, before anything is planned, a page that cannot be written, or that would have to show two configurations."""
    if len(configs) > 1:
        raise InputError("--page shows one configuration, and not two")
    if page.is_dir() or not page.parent.is_dir():
        raise InputError(f"--page ({page}) must be a file in a folder that exists")
    if any(page.exists() and page.samefile(config) for config in configs if config.exists()):
        raise InputError(f"--page ({page}) is the configuration itself")


def _write_page(page: Path, request: Request) -> None:
    from marginweave.base.durable import at_place, replace_file
    from marginweave.forecast.epsilon_page import epsilon_page

    content = epsilon_page(request)
    with at_place(page, "written"):
        replace_file(page, content)


def _planned(request: Request, schedule: Schedule | None) -> PlannedRelease:
    from marginweave.forecast.overview import PlannedRelease

    return PlannedRelease.of(request.configuration, lambda: request, schedule)


def _print_plans(
    configs: list[Path], plans: list[PlannedRelease], targets: list[list[str]]
) -> None:
    from marginweave.forecast.plan_sentence import plan_sentence

    for planned in plans:
        _ = planned.notes  # found now: what is refused prints no line before its refusal
    if len(plans) == 1:
        _say(plans[0].heading)
        _print_draws({"": plans[0]})
        _say(plans[0].ending)
    else:
        _compare(plans[0], plans[1])
    for config, planned, target in zip(configs, plans, targets, strict=True):

        def of_config(line: str, config: Path = config) -> str:
            return (
                str(plan_sentence("lines.of-config", config=str(config), line=line))
                if len(configs) > 1
                else line
            )

        good_for = planned.good_for
        for line in (*planned.notes, *good_for[:1]):
            _say(of_config(line))
        for line in good_for[1:]:
            _say(line)
        for line in target:
            _say(of_config(line))
        if planned.account.fits and len(configs) == 1:
            _say(str(plan_sentence("lines.next", config=str(config))))


def _say(line: str) -> None:
    """Print a line; on a terminal without breaks inside words, and with a command at its end on a line of its own."""
    from marginweave.forecast.layout import WIDTH, folded

    if not out.is_terminal:
        out.print(line)
        return
    words, is_followed, command = line.rpartition(": marginweave ")
    for piece in folded(f"{words}:" if is_followed else line, min(WIDTH, out.width)):
        out.print(piece)
    if is_followed:
        out.print(f"  marginweave {command}")


def _target_lines(request: Request, goal: ErrorTarget | None) -> list[str]:
    if goal is None:
        return []
    from marginweave.forecast.target import target_forecast

    return [str(sentence) for sentence in target_forecast(request.configuration, goal)]


def _facts(planned: PlannedRelease, target: list[str]) -> dict[str, object]:
    """Return all that is shown of a plan, for programs."""
    from marginweave.forecast.missing_pairs import missing_pairs

    privacy = planned.configuration.privacy
    account = planned.account
    return {
        "dataset": planned.configuration.dataset,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "unit": privacy.unit_key,
        "fits": account.fits,
        "more_that_fit": account.more_that_fit,
        "draws": {
            name: {**cells, "most": planned.most[name], **planned.numbers[name]}
            for name, cells in planned.draws.items()
        },
        "pairs": missing_pairs(planned.configuration).facts,
        "notes": [*planned.notes, *target],
        "rows": [_size_facts(size) for size in planned.sizes],
    }


def _size_facts(size: SizeForecast) -> dict[str, object]:
    """Return what a release of a number of rows will be good for, for programs."""
    return {
        "rows": size.rows,
        "counted": size.counted,
        "single": str(size.single),
        "pairs": str(size.pairs),
        "most_chosen": size.most_chosen,
        "records": str(size.records),
        "errors": None
        if size.errors is None
        else {name: error._asdict() for name, error in size.errors._asdict().items()},
        "takes": str(size.takes),
        "cost": None if size.cost is None else size.cost._asdict(),
        "noise": "" if size.noise is None else str(size.noise),
    }


def _print_draws(plans: dict[str, PlannedRelease]) -> None:
    from marginweave.forecast.layout import aligned
    from marginweave.forecast.overview import draw_rows

    for line in aligned(draw_rows(plans), labels=1 if len(plans) == 1 else 2):
        out.print(line)


def _compare(first: PlannedRelease, second: PlannedRelease) -> None:
    """Print both plans in one table, with a line for each draw of either."""
    from marginweave.forecast.plan_sentence import plan_sentence
    from marginweave.runs.continuity import configuration_differences

    plans = {"A": first, "B": second}
    for side, plan in plans.items():
        _say(
            str(
                plan_sentence(
                    "heading.compared", side=side, heading=plan.heading, epsilon=plan.epsilon
                )
            )
        )
    places = configuration_differences(first.configuration, second.configuration)
    key = "heading.differ" if places else "heading.same"
    _say(str(plan_sentence(key, places=", ".join(places))))
    _print_draws(plans)
