"""privacy.json: what is guaranteed, by which mechanisms, and under which assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from scipy.special import ndtr

from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.charges import Charge
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.measurements.plan import Plan
from marginweave.mechanisms.catalogue import MECHANISMS
from marginweave.mechanisms.exponential import Exponential
from marginweave.observations.combinations import Aggregates
from marginweave.publish.preparation_words import Bounds, preparation_words
from marginweave.publish.wording import known_words, stated_confidence, unit_assumption
from marginweave.released.account import Amounts, EpsilonDelta
from marginweave.released.earlier import earlier_words
from marginweave.released.statement import (
    CLAMPED,
    MISSING_BY_RULE,
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
    """privacy.json: the promise, and with what noise it was kept.

    `bounds` are the released ones of columns with private bounds, `verdict` is that of evaluation.json. The first arguments are
    those of `promise`.
    """
    stated = promise(configuration, plan, release)
    mechanisms = tuple(
        row.model_copy(update=dict(measurement.noise(configuration, aggregates)))
        for row, measurement in zip(stated.mechanisms, plan.draws, strict=True)
    )
    preparation = tuple(preparation_words(configuration, bounds))
    domain, noise = aggregates.domain, aggregates.noise if configuration.marginals is None else ()
    return PrivacyStatement(
        format=3,
        **dict(release.identity),
        **dict(stated) | {"mechanisms": mechanisms, "preparation": preparation},
        bounds=dict(bounds),
        domain=dict(zip(domain.names, domain.labels, strict=True)),
        undeclared=_undeclared(configuration, aggregates) or None,
        uncounted=_uncounted(configuration, aggregates),
        noise=tuple(LevelNoiseStatement(**asdict(of_length)) for of_length in noise),
        **dict(marginals),
        confidence=stated_confidence(configuration.with_bounds(bounds), plan, aggregates),
        verdict=verdict,
    )


def _undeclared(configuration: Configuration, aggregates: Aggregates) -> tuple[UndeclaredStatement, ...]:
    """What was counted of cells that are not as declared: what was clamped to bounds is none of these, which is said."""
    columns = {a.name: configuration.columns[a.column] for a in configuration.attributes}
    clamped = {name for name, column in columns.items() if isinstance(column, BinnedColumn) and column.is_clamped}
    return tuple(
        UndeclaredStatement(
            attribute=one.name,
            count=one.count,
            deviation=one.deviation,
            low=one.low,
            high=one.high,
            found=one.found,
            words="".join(
                [
                    f"{one.words(aggregates.record_count, aggregates.record_deviation, one.name)}.",
                    MISSING_BY_RULE if one.name in configuration.missing_by_rule else "",
                    CLAMPED if one.name in clamped else "",
                ]
            ),
            kept=one.kept,
            of_set=one.of_set or None,
        )
        for one in aggregates.domain.undeclared
    )


def _uncounted(configuration: Configuration, aggregates: Aggregates) -> UncountedStatement | None:
    """What was counted of rows that are not counted otherwise."""
    uncounted, subject = aggregates.domain.uncounted, configuration.privacy.subject
    if uncounted is None or subject is None:
        return None
    records = aggregates.record_count, aggregates.record_deviation
    words = f"{uncounted.words(*records, subject.column)}."
    return UncountedStatement(**asdict(uncounted), column=subject.column, words=words)


def with_types(statement: PrivacyStatement, types: Mapping[str, str]) -> PrivacyStatement:
    """The statement with the types of the source, and the assumption that they were public; as it is without any."""
    facts = {"types": dict(types), "assumptions": (*statement.assumptions, TYPED)} if types else {}
    return statement.model_copy(update=facts)


def promise(configuration: Configuration, plan: Plan, release: ReleaseFacts) -> Promise:
    """What privacy.json says that follows from configuration, plan and ledger; nothing that was computed from a draw."""
    return Promise(
        guarantee=_guarantee(configuration, plan),
        observer=_observer(plan, _mu(plan)),
        preparation=tuple(preparation_words(configuration, {})),
        mechanisms=tuple(_planned(draw, returned=draw.name in release.returned) for draw in plan.prices.charges),
        composition=_composition(configuration, plan) + earlier_words(configuration),
        assumptions=_assumptions(configuration, release),
        not_covered=(*DATA_DEPENDENT_STOPS, *known_words(configuration, own=True)),
        invariants=_invariants(configuration),
        earlier=tuple(EarlierStatement.of(known) for known in configuration.earlier) or None,
        configuration=configuration.canonical(),
    )


def _guarantee(configuration: Configuration, plan: Plan) -> Guarantee:
    """The planned guarantee, by which the release was admitted; `mu` and `rho` are None for (epsilon, delta) alone."""
    privacy, mu = configuration.privacy, _mu(plan)
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
    approved = APPROVED_AFTER_A_LOOK if release.evaluated_until_now else APPROVED
    return (
        unit_assumption(configuration),
        *ASSUMPTIONS,
        *(f"The values of column {name!r} were discovered under the budget." for name in configuration.private_columns),
        *_stated_facts(configuration),
        *known_words(configuration, own=False),
        *([CONFIGURED_AFTER_CHECK] if release.identity.configured_after_check else []),
        *([DRAFTED_FROM_TABLE] if release.identity.drafted_from_table else []),
        *([approved] if configuration.publish.approval else []),
    )


def _composition(configuration: Configuration, plan: Plan) -> str:
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
    """The (epsilon, delta) towards the sampled table of an amplified resize, which the noise of its draws adds up to."""
    privacy, resize = configuration.privacy, configuration.resize
    if resize is None or not resize.amplify:
        return None
    formula = resize.formula or "tight"
    epsilon, delta = functional_parameters(privacy.epsilon, privacy.delta, resize.copies, resize.rate, formula)
    return EpsilonDelta(epsilon=epsilon, delta=delta)


def _observer(plan: Plan, mu: float | None) -> float:
    """The largest probability that a best guess whether one unit is in the data is right.

    Phi(mu / 2) for Gaussian differential privacy (Dong, Roth, Su 2022, section 2), plus delta_threshold for what the discovery
    of private values may add; (e^epsilon + delta)/(1 + e^epsilon) for (epsilon, delta) alone.
    """
    if mu is not None:
        return min(1.0, float(ndtr(mu / 2)) + plan.delta_threshold)
    return min(1.0, (1 + plan.delta * math.exp(-plan.epsilon)) / (1 + math.exp(-plan.epsilon)))


def _invariants(configuration: Configuration) -> tuple[Invariant, ...] | None:
    """The exact tables of these rows; None where there are none."""
    own = [known for known in configuration.totals if known.exact and known.table.origin == "these-rows"]
    tables = [(known.table, round(known.total)) for known in own]
    return tuple(Invariant(attributes=table.columns, records=n, published=table.public) for table, n in tables) or None


def _stated_facts(configuration: Configuration) -> list[str]:
    """Where each column's facts are published, by the steward's word; a draft's private line keeps its kind and form."""
    stated = []
    for name, column in configuration.columns.items():
        if column.public is not None:
            stated.append(f"What the configuration says of column {name!r} is public knowledge: {column.public}.")
        elif column.confirm:
            drafted = f"Kind and form of column {name!r} were drafted from the data"
            stated.append(f"{drafted} and are taken for public knowledge.")
    return stated


def _planned(draw: Charge, *, returned: bool) -> Mechanism:
    """A draw as it was planned: the parameter of its mechanism, and its cost."""
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
