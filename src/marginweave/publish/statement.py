"""Writes privacy.json: what is guaranteed, by which mechanisms, and under which assumptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from scipy.special import ndtr

from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.charges import Charge
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.evaluate.undeclared import uncounted_title, undeclared_sentence
from marginweave.measurements.plan import Plan
from marginweave.mechanisms.catalogue import MECHANISMS
from marginweave.mechanisms.exponential import Exponential
from marginweave.observations.combinations import Aggregates
from marginweave.publish.preparation_words import Bounds, preparation_sentences
from marginweave.publish.wording import (
    known_sentences,
    linked_assumption,
    stated_confidence,
    unit_assumption,
)
from marginweave.released.account import Amounts, EpsilonDelta
from marginweave.released.statement import (
    EarlierStatement,
    Guarantee,
    Invariant,
    LevelNoiseStatement,
    MarginalsStatement,
    Mechanism,
    PrivacyStatement,
    Promise,
    ReleaseFacts,
    UncountedStatement,
    UndeclaredStatement,
)
from marginweave.released.verdict import VerdictSummary
from marginweave.texts.sentences import Sentence, report_sentence, verdict_sentence

ASSUMPTIONS = tuple(
    map(report_sentence, ("assumption.configuration", "assumption.machine", "assumption.account"))
)
"""What every release takes for granted."""
TYPED = report_sentence("assumption.types")
APPROVED = report_sentence("assumption.approved")
APPROVED_AFTER_A_LOOK = report_sentence("assumption.approved-after-look")
DATA_DEPENDENT_STOPS = tuple(
    map(
        report_sentence,
        ("not-covered.stop-before-draws", "not-covered.stop-after-draw", "not-covered.time"),
    )
)
SKIPS = report_sentence("not-covered.skip")

NO_MARGINALS = MarginalsStatement()


def privacy_statement(
    configuration: Configuration,
    plan: Plan,
    aggregates: Aggregates,
    release: ReleaseFacts,
    bounds: Bounds,
    verdict: VerdictSummary,
    *,
    marginals: MarginalsStatement = NO_MARGINALS,
) -> PrivacyStatement:
    """Return privacy.json: the promise, and the noise by which it was kept.

    `bounds` are the released ones of columns with private bounds, `verdict` is that of evaluation.json. The first arguments are
    those of `promise`.
    """
    stated = promise(configuration, plan, release)
    mechanisms = []
    for row, measurement in zip(stated.mechanisms, plan.draws, strict=True):
        noise = dict(measurement.noise(configuration, aggregates))
        mechanisms.append(row.model_copy(update=noise))
    facts = dict(stated)
    facts["mechanisms"] = tuple(mechanisms)
    facts["preparation"] = _texts(preparation_sentences(configuration, bounds))
    levels = aggregates.noise if configuration.marginals is None else ()
    domain = aggregates.domain
    return PrivacyStatement(
        format=3,
        **dict(release.identity),
        **facts,
        bounds=dict(bounds),
        domain=dict(zip(domain.names, domain.labels, strict=True)),
        undeclared=_undeclared(configuration, aggregates) or None,
        uncounted=_uncounted(configuration, aggregates),
        noise=tuple(LevelNoiseStatement(**asdict(level)) for level in levels),
        **dict(marginals),
        confidence=stated_confidence(configuration.with_bounds(bounds), plan, aggregates),
        verdict=verdict,
    )


def _undeclared(
    configuration: Configuration, aggregates: Aggregates
) -> tuple[UndeclaredStatement, ...]:
    """Return the counts of cells that are not as declared, and say that values clamped to bounds are not among them."""
    clamped = set()
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.column]
        if isinstance(column, BinnedColumn) and column.is_clamped:
            clamped.add(attribute.name)
    statements = []
    for row in aggregates.domain.undeclared:
        words = undeclared_sentence(row, aggregates, configuration, {})
        if row.name in clamped:
            words = verdict_sentence("undeclared.clamped", sentence=words)
        statement = UndeclaredStatement(
            attribute=row.name,
            count=row.count,
            deviation=row.deviation,
            low=row.low,
            high=row.high,
            found=row.found,
            words=str(words),
            kept=row.kept,
            of_set=row.of_set or None,
        )
        statements.append(statement)
    return tuple(statements)


def _uncounted(configuration: Configuration, aggregates: Aggregates) -> UncountedStatement | None:
    """Return the count of rows that are not counted otherwise; None if there is none."""
    uncounted = aggregates.domain.uncounted
    subject = configuration.privacy.subject
    if uncounted is None or subject is None:
        return None
    title = uncounted_title(subject.column, configuration)
    words = uncounted.sentence(aggregates.record_count, aggregates.record_deviation, title)
    return UncountedStatement(**asdict(uncounted), column=subject.column, words=str(words))


def with_types(
    statement: PrivacyStatement, types: Mapping[str, str], configuration: Configuration
) -> PrivacyStatement:
    """Return the statement with the types of the source, and the assumption that they were public; unchanged if empty."""
    if not types:
        return statement
    facts: dict[str, Any] = {
        "types": dict(types),
        "assumptions": (*statement.assumptions, str(TYPED)),
    }
    zoned = [
        name
        for name, kind in types.items()
        if "tz=" in kind and configuration.columns[name].type == "datetime"
    ]
    if zoned:
        sentence = report_sentence("preparation.zoned", columns=listed(zoned))
        facts["preparation"] = (*statement.preparation, str(sentence))
    return statement.model_copy(update=facts)


def promise(configuration: Configuration, plan: Plan, release: ReleaseFacts) -> Promise:
    """Return the part of privacy.json that follows from configuration, plan and ledger, and from no draw."""
    mechanisms = [
        _planned(draw, returned=draw.name in release.returned) for draw in plan.prices.charges
    ]
    earlier = [EarlierStatement.of(release_before) for release_before in configuration.earlier]
    return Promise(
        guarantee=_guarantee(configuration, plan),
        observer=_observer(plan, _mu(plan)),
        preparation=_texts(preparation_sentences(configuration, {})),
        mechanisms=tuple(mechanisms),
        composition=str(_composition(configuration, plan)),
        assumptions=_texts(_assumptions(configuration, release)),
        not_covered=_texts(
            (
                *_stops(configuration),
                *known_sentences(configuration, from_these_rows=True),
                *_earlier_counts(configuration),
            )
        ),
        invariants=_invariants(configuration),
        earlier=tuple(earlier) or None,
        configuration=configuration.canonical(),
    )


def _stops(configuration: Configuration) -> Iterator[Sentence]:
    """Yield how a run may end, or how long it may take, in dependence on the rows."""
    yield from DATA_DEPENDENT_STOPS
    if configuration.unchanged == "skip":
        yield SKIPS


def _earlier_counts(configuration: Configuration) -> Iterator[Sentence]:
    """Yield that counts of earlier releases, which are in the files of this one, have guarantees of their own."""
    if configuration.earlier:
        yield report_sentence("not-covered.earlier", runs=configuration.earlier_runs)


def _texts(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Return sentences as texts."""
    return tuple(map(str, sentences))


def _guarantee(configuration: Configuration, plan: Plan) -> Guarantee:
    """Return the planned guarantee, by which the release was admitted; `mu` and `rho` are None for (epsilon, delta) alone."""
    privacy = configuration.privacy
    mu = _mu(plan)
    return Guarantee(
        unit=configuration.unit_words,
        neighbors=privacy.neighbors,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        weak_delta=privacy.weak_delta,
        epsilon_of_the_draws=plan.spent_epsilon,
        on_the_sampled_table=_functional(configuration),
        mu=mu,
        rho=None if mu is None else float(plan.cost.rho),
        delta_threshold=plan.delta_threshold,
    )


def _mu(plan: Plan) -> float | None:
    return None if plan.cost.plain else math.sqrt(plan.cost.mu2)


def _assumptions(configuration: Configuration, release: ReleaseFacts) -> Iterator[Sentence]:
    """Yield the assumptions of the guarantee, a sentence each."""
    yield unit_assumption(configuration)
    yield from linked_assumption(configuration)
    yield from ASSUMPTIONS
    for name in configuration.private_columns:
        yield report_sentence("assumption.discovered", column=name)
    yield from _stated_facts(configuration)
    yield from known_sentences(configuration, from_these_rows=False)
    if release.identity.configured_after_check:
        yield report_sentence("assumption.after-check")
    if release.identity.drafted_from_table:
        yield report_sentence("assumption.init")
    if configuration.publish.approval:
        yield APPROVED_AFTER_A_LOOK if release.evaluated_until_now else APPROVED


def _composition(configuration: Configuration, plan: Plan) -> Sentence:
    """Return how the costs of the draws add up, and how earlier releases of the same rows compose with this one."""
    composition = _composition_of_draws(configuration, plan)
    runs = configuration.earlier_runs
    return (
        report_sentence("composition.earlier", composition=composition, runs=runs)
        if runs
        else composition
    )


def _composition_of_draws(configuration: Configuration, plan: Plan) -> Sentence:
    """Return how the costs of the draws add up."""
    if configuration.resize is not None and configuration.resize.amplify:
        return report_sentence("composition.amplified")
    noise = plan.pure_noise
    if noise is not None:
        return report_sentence(
            "composition.partly-pure" if plan.delta else "composition.pure", noise=noise.title
        )
    composition = report_sentence("composition.gaussian")
    if any(draw.mechanism is Exponential for draw in plan.draws):
        composition = report_sentence("composition.exponential", composition=composition)
    if configuration.rounds is not None:
        composition = report_sentence("composition.rounds", composition=composition)
    return composition


def _functional(configuration: Configuration) -> EpsilonDelta | None:
    """Return the (epsilon, delta) towards the sampled table of an amplified resize, to which the noise of its draws adds up."""
    privacy = configuration.privacy
    resize = configuration.resize
    if resize is None or not resize.amplify:
        return None
    formula = resize.formula or "tight"
    epsilon, delta = functional_parameters(
        privacy.epsilon, privacy.delta, resize.copies, resize.rate, formula
    )
    return EpsilonDelta(epsilon=epsilon, delta=delta)


def _observer(plan: Plan, mu: float | None) -> float:
    """Return the largest probability that a best guess whether one unit is in the data is right.

    Phi(mu / 2) for Gaussian differential privacy (Dong, Roth, Su 2022, section 2), plus delta_threshold for what the discovery
    of private values may add; (e^epsilon + delta)/(1 + e^epsilon) for (epsilon, delta) alone.
    """
    if mu is not None:
        return min(1.0, float(ndtr(mu / 2)) + plan.delta_threshold)
    # (e^epsilon + delta)/(1 + e^epsilon) = (1 + delta e^-epsilon)/(1 + e^-epsilon)
    shrunk = math.exp(-plan.epsilon)
    return min(1.0, (1 + plan.delta * shrunk) / (1 + shrunk))


def _invariants(configuration: Configuration) -> tuple[Invariant, ...] | None:
    """Return the exact tables of these rows; None where there are none."""
    invariants = []
    for known_total in configuration.totals:
        if known_total.exact and known_total.table.origin == "these-rows":
            table = known_total.table
            records = round(known_total.total)
            invariant = Invariant(attributes=table.columns, records=records, published=table.public)
            invariants.append(invariant)
    return tuple(invariants) or None


def _stated_facts(configuration: Configuration) -> Iterator[Sentence]:
    """Yield where each column's facts are published, by the steward's word.

    For a private line of a draft it is the column's kind and form that are taken for public.
    """
    for name, column in configuration.columns.items():
        if column.public is not None:
            yield report_sentence("assumption.public", column=name, public=column.public)
        elif column.confirm:
            yield report_sentence("assumption.drafted", column=name)


def _planned(draw: Charge, *, returned: bool) -> Mechanism:
    """Return a draw as it was planned: the parameter of its mechanism, and its cost."""
    gaussian = MECHANISMS[draw.mechanism].parameter == "noise_multiplier"
    return Mechanism(
        draw=draw.name,
        mechanism=draw.mechanism,
        length=draw.length,
        noise_multiplier=draw.parameter if gaussian else None,
        epsilon=None if gaussian else draw.parameter,
        state="returned" if returned else "drawn",
        **dict(Amounts(**draw.cost.texts)),
    )
