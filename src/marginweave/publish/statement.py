"""Writes privacy.json: what is guaranteed, by which mechanisms, and under which assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from scipy.special import ndtr

from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.charges import Charge
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.evaluate.undeclared import undeclared_sentence
from marginweave.measurements.plan import Plan
from marginweave.mechanisms.catalogue import MECHANISMS
from marginweave.mechanisms.exponential import Exponential
from marginweave.observations.combinations import Aggregates
from marginweave.publish.preparation_words import Bounds, preparation_words
from marginweave.publish.wording import known_words, stated_confidence, unit_assumption
from marginweave.released.account import Amounts, EpsilonDelta
from marginweave.released.earlier import earlier_words
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
from marginweave.texts.sentences import verdict_sentence

ASSUMPTIONS = (
    "Every statement in the configuration (columns, domains, bounds, bins, caps, seeds) was public before the data was seen.",
    "The operating system's generator is unpredictable, and the machine, the ledger and the private folders are the curator's.",
    "The bound of all releases about the same people together is the cap of their account, which account.json states.",
)
COMPOSED = "Gaussian differential privacy: mu^2 of all draws add; delta_threshold is added to delta"
SELECTED = (
    "; mu covers each exponential mechanism alone, and adds up over releases: within this one their exact worst curves are "
    "composed with the noise, which gives the smaller epsilon_of_the_draws"
)
PURE = "The draws of {noise} noise are (epsilon, 0)-differentially private, and their epsilons add; there is no delta"
PARTLY_PURE = (
    "The draws of {noise} noise are (epsilon, 0)-differentially private and their epsilons add; the others, by Gaussian "
    "differential privacy, are converted at delta; both are added"
)
IN_ROUNDS = (
    "; which marginals a round measures, and with how many of the equal shares, follows from earlier draws, and the price of "
    "every draw was fixed before the first"
)
AMPLIFIED = (
    "The draws together are differentially private towards the sampled table, by Gaussian differential privacy; the sampling "
    "makes that (epsilon, delta) towards the data"
)
TYPED = "The types of the source's columns, as its schema has them, were public before the data was seen."
APPROVED = "Somebody who had seen this release, and nothing that it was made from, decided to publish it."
APPROVED_AFTER_A_LOOK = (
    "Somebody who had seen this release decided to publish it. Before that, a release about the same people was compared with "
    "the sensitive table (internal evaluation), and that person may have seen the result."
)
CONFIGURED_AFTER_CHECK = (
    "The configuration was changed after a look at the table with `marginweave check`, or by a run that stopped for its rows "
    "or looked for ids that repeat. What it declares now is public knowledge all the same, and was not taken from the table."
)
DRAFTED_FROM_TABLE = (
    "`marginweave init` drafted a configuration from the table, and the steward confirmed or corrected each line of it that "
    "was read from there: what is declared now is public knowledge."
)
DATA_DEPENDENT_STOPS = (
    (
        "A run that stops before its first draw (a broken contract or suite, an unreadable source; where a person has started "
        "it, or `check: stop` is set, also a table without rows, or a column that is lost for the most part) says so to its "
        "operator."
    ),
    (
        "A run that stops after a draw (memory or disk is too small for its counts, or a file it set aside is damaged) says so "
        "to its operator; the same command resumes it, repeats the same draws, and charges nothing more."
    ),
    "How long a run took and how much memory it used is not covered by the guarantee.",
)


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
    facts["preparation"] = tuple(preparation_words(configuration, bounds))
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


def _undeclared(configuration: Configuration, aggregates: Aggregates) -> tuple[UndeclaredStatement, ...]:
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
    words = uncounted.sentence(aggregates.record_count, aggregates.record_deviation, subject.column)
    return UncountedStatement(**asdict(uncounted), column=subject.column, words=str(words))


def with_types(statement: PrivacyStatement, types: Mapping[str, str]) -> PrivacyStatement:
    """Return the statement with the types of the source, and the assumption that they were public; unchanged if empty."""
    if not types:
        return statement
    facts = {"types": dict(types), "assumptions": (*statement.assumptions, TYPED)}
    return statement.model_copy(update=facts)


def promise(configuration: Configuration, plan: Plan, release: ReleaseFacts) -> Promise:
    """Return the part of privacy.json that follows from configuration, plan and ledger, and from no draw."""
    mechanisms = [_planned(draw, returned=draw.name in release.returned) for draw in plan.prices.charges]
    earlier = [EarlierStatement.of(release_before) for release_before in configuration.earlier]
    return Promise(
        guarantee=_guarantee(configuration, plan),
        observer=_observer(plan, _mu(plan)),
        preparation=tuple(preparation_words(configuration, {})),
        mechanisms=tuple(mechanisms),
        composition=_composition(configuration, plan) + earlier_words(configuration),
        assumptions=_assumptions(configuration, release),
        not_covered=(*DATA_DEPENDENT_STOPS, *known_words(configuration, from_these_rows=True)),
        invariants=_invariants(configuration),
        earlier=tuple(earlier) or None,
        configuration=configuration.canonical(),
    )


def _guarantee(configuration: Configuration, plan: Plan) -> Guarantee:
    """Return the planned guarantee, by which the release was admitted; `mu` and `rho` are None for (epsilon, delta) alone."""
    privacy = configuration.privacy
    mu = _mu(plan)
    return Guarantee(
        unit=privacy.unit_words,
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


def _assumptions(configuration: Configuration, release: ReleaseFacts) -> tuple[str, ...]:
    """Return the assumptions of the guarantee, a sentence each."""
    private = configuration.private_columns
    assumptions = [unit_assumption(configuration), *ASSUMPTIONS]
    assumptions += [f"The values of column {name!r} were discovered under the budget." for name in private]
    assumptions += _stated_facts(configuration)
    assumptions += known_words(configuration, from_these_rows=False)
    if release.identity.configured_after_check:
        assumptions.append(CONFIGURED_AFTER_CHECK)
    if release.identity.drafted_from_table:
        assumptions.append(DRAFTED_FROM_TABLE)
    if configuration.publish.approval:
        assumptions.append(APPROVED_AFTER_A_LOOK if release.evaluated_until_now else APPROVED)
    return tuple(assumptions)


def _composition(configuration: Configuration, plan: Plan) -> str:
    """Return how the costs of the draws add up, in words."""
    if configuration.resize is not None and configuration.resize.amplify:
        return AMPLIFIED
    noise = plan.pure_noise
    if noise is not None:
        return (PARTLY_PURE if plan.delta else PURE).format(noise=noise.title)
    words = COMPOSED
    if any(draw.mechanism is Exponential for draw in plan.draws):
        words += SELECTED
    if configuration.rounds is not None:
        words += IN_ROUNDS
    return words


def _functional(configuration: Configuration) -> EpsilonDelta | None:
    """Return the (epsilon, delta) towards the sampled table of an amplified resize, to which the noise of its draws adds up."""
    privacy = configuration.privacy
    resize = configuration.resize
    if resize is None or not resize.amplify:
        return None
    formula = resize.formula or "tight"
    epsilon, delta = functional_parameters(privacy.epsilon, privacy.delta, resize.copies, resize.rate, formula)
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


def _stated_facts(configuration: Configuration) -> list[str]:
    """Return where each column's facts are published, by the steward's word.

    For a private line of a draft it is the column's kind and form that are taken for public.
    """
    stated = []
    for name, column in configuration.columns.items():
        if column.public is not None:
            stated.append(f"What the configuration says of column {name!r} is public knowledge: {column.public}.")
        elif column.confirm:
            drafted = f"Kind and form of column {name!r} were drafted from the data"
            stated.append(f"{drafted} and are taken for public knowledge.")
    return stated


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
