"""`plan --page`: one page with the plan of a configuration at several epsilons, and error against epsilon.

Every number and sentence is that of `marginweave plan` at the same epsilon, from `PlannedRelease`; between the epsilons nothing
is computed. The page has no data, nothing of a ledger, and asks for no network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.missing_pairs import missing_pairs
from marginweave.forecast.overview import PlannedRelease, draw_rows, size_rows
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.forecast.sizes import SizeForecast
from marginweave.forecast.target import with_epsilon
from marginweave.publish.figures import EpsilonErrors, Mark, epsilon_figure
from marginweave.publish.templates import read_text, render
from marginweave.released.verdict import GOOD
from marginweave.runs.limits import check_size
from marginweave.texts.sentences import Sentence

if TYPE_CHECKING:
    from marginweave.runs.request import Request

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
"""The epsilons of a page, in addition to that of its configuration."""
_MARKS: tuple[tuple[str, Mark], ...] = (
    ("good-for.single", "ring"),
    ("good-for.pairs", "dot"),
    ("good-for.record-pairs", "box"),
    ("good-for.record-triples", "frame"),
)
"""The errors of a figure: the key of what each is called, and its mark."""


@dataclass(frozen=True, kw_only=True)
class PlanAtEpsilon:
    """The plan at one epsilon: `draws` and `sizes` are tables with a head, a cell a text.

    `missing` is how many pairs of columns will not be measured, `pair_notes` have the sentences on it.
    """

    epsilon: float
    heading: str
    ending: str
    draws: list[list[str]]
    sizes: list[list[str]]
    pair_notes: list[str]
    notes: list[str]
    size_notes: list[str]
    missing: Sentence
    forecasts: list[SizeForecast]

    @classmethod
    def of(cls, configuration: Configuration, find: Callable[[], Request]) -> PlanAtEpsilon:
        """Return the plan of a configuration. DP: arithmetic on public facts."""
        planned = PlannedRelease.of(configuration, find)
        sizes = planned.sizes
        return cls(
            epsilon=configuration.privacy.epsilon,
            heading=planned.heading,
            ending=planned.ending,
            draws=draw_rows({"": planned}),
            sizes=size_rows(sizes) if sizes else [],
            pair_notes=planned.pair_notes,
            notes=planned.public_notes,
            size_notes=planned.size_notes if sizes else [],
            missing=_missing(configuration),
            forecasts=sizes,
        )


def epsilon_page(request: Request) -> bytes:
    """Return the page of a request's configuration as HTML. DP: arithmetic on public facts.

    An epsilon that a run would refuse is left out, and the page says why.
    """
    configuration = request.configuration
    steps: list[PlanAtEpsilon] = []
    refusals: list[Sentence] = []
    chosen = configuration.privacy.epsilon
    for epsilon in sorted({*EPSILONS, chosen}):
        try:
            changed = with_epsilon(configuration, epsilon)
            check_size(changed)
        except InputError as refusal:
            refusals.append(plan_sentence("page.refused", epsilon=epsilon, refusal=str(refusal)))
            continue
        steps.append(PlanAtEpsilon.of(changed, lambda: request))
    epsilons = [step.epsilon for step in steps]
    return render(
        "plan.html.j2",
        title=plan_sentence("page.title", dataset=configuration.dataset),
        description=configuration.description,
        steps=steps,
        chosen=epsilons.index(chosen),
        refusals=refusals,
        figures=_figures(steps),
        expects_records=any(size.errors is not None for step in steps for size in step.forecasts),
        script=Markup(read_text("plan_page.js")),  # noqa: S704 - a file of this package
    ).encode()


def _figures(steps: Sequence[PlanAtEpsilon]) -> list[tuple[Sentence, Markup, list[list[str]]]]:
    """Return for each number of rows a title, a figure, and a table with the numbers of the figure in words."""
    figures = []
    for number, forecast in enumerate(steps[0].forecasts):
        title = plan_sentence("page.figure", rows=forecast.rows)
        sizes = [step.forecasts[number] for step in steps]
        figure = epsilon_figure(
            [step.epsilon for step in steps], _kinds(sizes), title, GOOD, f"rows-{number}"
        )
        figures.append((title, figure, _table(steps, sizes)))
    return figures


def _kinds(sizes: Sequence[SizeForecast]) -> list[EpsilonErrors]:
    """Return the errors of the plans, kind by kind; kinds of which nothing is known at any epsilon are left out."""
    rows = [_errors(size) for size in sizes]
    kinds = [
        EpsilonErrors(title=plan_sentence(key), mark=mark, errors=errors)
        for (key, mark), errors in zip(_MARKS, zip(*rows, strict=True), strict=True)
    ]
    return [kind for kind in kinds if set(kind.errors) != {None}]


def _errors(size: SizeForecast) -> list[tuple[float, float, float] | None]:
    """Return the errors of one plan in the order of `_MARKS`, those by noise without a range."""
    by_noise = [None if share is None else (share, share, share) for share in size.noise_shares]
    if size.errors is None:
        return [*by_noise, None, None]
    pairs = size.errors.pairs
    triples = size.errors.triples
    of_records = [(error.error, error.low, error.high) for error in (pairs, triples)]
    return [*by_noise, *of_records]


def _table(steps: Sequence[PlanAtEpsilon], sizes: Sequence[SizeForecast]) -> list[list[str]]:
    """Return a head, and a line for each epsilon: errors as `plan` writes them, and the pairs that will not be measured."""
    titles = [plan_sentence(key) for key, _ in _MARKS]
    head = ["epsilon", *map(str, titles), str(plan_sentence("page.missing"))]
    table = [head]
    for step, size in zip(steps, sizes, strict=True):
        not_measured = str(plan_sentence("size.not-measured"))
        records = [not_measured, not_measured]
        if size.errors is not None:
            records = [str(error.sentence) for error in size.errors]
        cells = [f"{step.epsilon:g}", str(size.single), str(size.pairs), *records]
        table.append([*cells, str(step.missing)])
    return table


def _missing(configuration: Configuration) -> Sentence:
    """Return how many pairs of columns will not be measured, as far as public facts tell."""
    pairs = missing_pairs(configuration)
    key = "page.missing-at-least" if pairs.missing else "page.missing-unknown"
    if pairs.is_decided:
        key = "page.missing-of"
    return plan_sentence(key, missing=pairs.missing, pairs=pairs.pairs)
