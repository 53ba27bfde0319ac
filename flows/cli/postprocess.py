"""Commands for releases that exist: `synthesize`, `evaluate`, `report`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from marginweave.flows.cli.console import Home, RunName, Source, command, out
from marginweave.schemas.errors import InputError


@command
def synthesize(
    run_name: RunName,
    records: Annotated[
        int | None, typer.Option(min=0, max=10**8, help="How many records [default: as configured].")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Public seed of the new records [default: as configured].")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder to write to [default: release/synthesis-SEED of the run].")
    ] = None,
    home: Home = None,
) -> None:
    """Make new synthetic records from a finished release: post-processing, free of charge.

    Example: `marginweave synthesize affairs-1a2b3c4d --records 1000 --seed 8`
    """
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.postprocess.published import regenerate_records

    out.print(
        f"Written to {regenerate_records(home_directory(home, os.environ), run_name, records=records, seed=seed, to=to)}"
    )


@command
def evaluate(
    run_name: RunName,
    internal: Annotated[
        bool, typer.Option("--internal", help="Compare with the sensitive table; the result stays in internal/.")
    ] = False,
    attacks: Annotated[
        Path | None,
        typer.Option(
            "--attacks", metavar="FILE", help="Attack the records, with rows of FILE that were in no release."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
    source: Source = None,
    home: Home = None,
) -> None:
    """Show how well a release's records keep its counts; or compare with the sensitive table, for internal use only.

    Example: `marginweave evaluate affairs-1a2b3c4d`
    """
    from marginweave.flows.orchestration.environment import home_directory, prepare_environment
    from marginweave.flows.postprocess.published import attack_release, evaluate_internally, releasable_evaluation
    from marginweave.tasks.publish.wording import paid_words

    place = home_directory(home, os.environ)
    if (internal or attacks) and as_json:
        raise InputError("--json shows the numbers that may be released; internal ones are in a file only")
    if internal:
        prepare_environment(place)
        out.print(f"Not for release: {evaluate_internally(place, run_name, source)}")
        return
    if attacks is not None:
        prepare_environment(place)
        out.print(f"Not for release: {attack_release(place, run_name, source, attacks)}")
        return
    evaluation = releasable_evaluation(place, run_name)
    if as_json:
        typer.echo(json.dumps(evaluation, indent=2))
        return
    table = Table("length", "combinations", "counts kept", "suppressed", "fabricated", "mean error", "TVD", box=None)
    for row in evaluation["lengths"]:
        kept = None if row["preservation"] is None else 100 * row["preservation"]
        table.add_row(
            str(row["length"]), str(row["combinations"]), _shown(kept, " %"), _shown(row["suppressed"], " %"),
            _shown(row["fabricated"], " %"), _shown(row["mean_error"], ""), _shown(row["tvd"], "", 3),
        )  # fmt: skip
    out.print(table)
    for line in _evaluation_words(evaluation):
        out.print(line)
    out.print("Synthetic records against the released counts, not against the sensitive table.")
    for sentence in paid_words(evaluation):
        out.print(sentence)


@command
def report(
    run_name: RunName,
    to: Annotated[
        Path | None, typer.Option(help="Folder to write the pages to, anew [default: the published report].")
    ] = None,
    home: Home = None,
) -> None:
    """Say where a release's report is, or write report and explorer anew from what was published: the same bytes.

    Example: `marginweave report affairs-1a2b3c4d --to pages`
    """
    from marginweave.flows.orchestration.environment import home_directory, prepare_environment
    from marginweave.flows.postprocess.published import rewrite_report

    place = home_directory(home, os.environ)
    prepare_environment(place)
    out.print(str(rewrite_report(place, run_name, to)))


def _evaluation_words(evaluation: dict[str, Any]) -> Iterator[str]:
    """What the table leaves out: parts of the distance that a model tells apart, worst marginal, association, broken rules."""
    parts = evaluation.get("model", [])
    if any(part["model_error"] is not None for part in parts):  # else nothing was released
        both = ("model_error", "sampling_error")
        sides = [", ".join(_shown(part[side], "", 3) or "unknown" for part in parts) for side in both]
        yield f"TVD by length from counts to the model {sides[0]}, from the model to its records {sides[1]}"
    for marginal in evaluation["marginals"][:1]:
        noise = "" if marginal["noise"] is None else f" (noise alone implies {marginal['noise']:.3f})"
        yield f"Furthest off: {', '.join(marginal['attributes'])}, TVD {marginal['tvd']:.3f}{noise}"
    difference = evaluation["association"]["cramers_v"]["mean_difference"]
    if difference is not None:
        yield f"Association of pairs (Cramér's V): mean difference {difference:.3f}"
    broken = sum(rule["records"] > 0 for rule in evaluation["rules"])
    if evaluation["rules"]:
        yield f"Declared rules that some record breaks: {broken} of {len(evaluation['rules'])}"


def _shown(value: float | None, unit: str, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"
