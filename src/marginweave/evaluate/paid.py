"""The mean count error of marginals: what a share of the budget buys."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from marginweave.checkpoints.codecs import unpack_arrays
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.evaluation import PaidSettings
from marginweave.configuration.execution import Execution
from marginweave.configuration.release import Configuration
from marginweave.draws.references import DerivedReference, StageResult
from marginweave.estimate.intervals import LEVEL, count_interval
from marginweave.evaluate.cells import Cells, Comparison, Records
from marginweave.evaluate.tallies import Attributes, Codes
from marginweave.measurements.combinations import Domain
from marginweave.released.paid import Estimate, PaidEvaluation

_ABOUT = (
    "mean over all marginals of {length} attribute(s), {marginals} of them, of the sum over cells, missing as a value, of "
    "|count of the rows as prepared - synthetic count|, the synthetic counts weighted to the noisy number of records; with "
    "noise of the stated standard deviation, bought from the budget; a negative value is 0. The intervals are for that noise, "
    "and take the number of records as released. It is about these synthetic records alone, and nothing was chosen by it"
)


def bought(
    reference: DerivedReference, paid: StageResult, synthesized: StageResult, record_count: int
) -> PaidEvaluation | None:
    """What was bought; None where another version of the program, which made other records, had drawn it before.

    DP: post-processing.
    """
    arrays, meta = unpack_arrays(reference.load(paid))
    if meta["synthesized"] != records_digest(reference.load_blocks(synthesized)):
        return None
    configuration = reference.configuration
    settings, marginals = bought_marginals(configuration)
    return paid_evaluation(int(arrays["value"][0]), meta["deviation"], record_count, settings, len(marginals))


def bought_marginals(configuration: Configuration) -> tuple[PaidSettings, tuple[Attributes, ...]]:
    """What was bought, and the marginals that it is about."""
    settings = configuration.evaluate.paid
    assert settings is not None
    return settings, compared_marginals(configuration.attributes, settings.length)


def records_digest(made: Iterable[bytes]) -> str:
    """SHA-256 of the records, block after block."""
    digest = hashlib.sha256()
    for block in made:
        digest.update(block)
    return digest.hexdigest()


def compared_marginals(attributes: Sequence[Attribute], length: int) -> tuple[Attributes, ...]:
    """All sets of `length` attributes that have one value a record; a set of values would put a record into several cells."""
    single = [j for j, attribute in enumerate(attributes) if not attribute.is_set]
    return tuple(itertools.combinations(single, length))


def mean_count_error(
    sensitive: Iterable[Codes],
    records: Iterable[Codes],
    domain: Domain,
    marginals: Sequence[Attributes],
    record_count: int,
    memory: int = Execution().memory,
) -> int:
    """floor(T / (m b)), T = sum over m marginals r of sum over cells |b M_r(D) - a M_r(S)|: mean L1 distance, in records.

    M_r counts a table over the attributes r, a missing value as a value. D is the sensitive table, S the synthetic one, whose
    counts are weighted by a/b, the released number of records over that of S in lowest terms, so that all is integer.

    S, a, b and m are fixed by the configuration and earlier draws. One record of D is in one cell of each M_r, so it moves
    each of the m inner sums by b at most (triangle inequality), and T by m b. With theta records of one unit that come or
    go, |T - T'| <= m b theta; a replaced record is one that goes and one that comes, so |T - T'| <= 2 m b theta under
    replace-one. For integers T <= T' + m b s gives floor(T / (m b)) <= floor(T' / (m b) + s) = floor(T' / (m b)) + s, as s is
    an integer, and the same with both exchanged. The value has sensitivity s = theta, or 2 theta under replace-one, in L1 and
    in L2 (`l1_sensitivity`); both are reached.
    DP: none of its own: private until noise is added.

    Args:
        sensitive: Codes of the rows as prepared over the released domain, block by block, one array an attribute; the size
            is missing. A pass over the blocks can be repeated.
        records: Codes of the synthetic records, likewise.
        domain: The released domain.
        marginals: The sets of attributes, at least one.
        record_count: The released number of records, not negative.
        memory: What counting may take, as it is configured; it changes nothing.
    """
    number = sum(len(codes[0]) for codes in records)
    weight = Fraction(record_count, number) if number else Fraction(0)
    synthetic, real = weight.as_integer_ratio()

    def distance(cells: Cells) -> int:
        # counts are whole and below 2^53; weighted ones below 2^63 for all tables that there are
        return int(np.abs(real * cells.reference.astype(np.int64) - synthetic * cells.synthetic.astype(np.int64)).sum())

    one, other = (Records(blocks, domain, memory) for blocks in (sensitive, records))
    comparison = Comparison(reference=one, synthetic=other, sizes=domain.sizes)
    return sum(comparison.measure(marginals, distance)) // (len(marginals) * real)


def paid_evaluation(noisy: int, sigma: float, record_count: int, paid: PaidSettings, marginals: int) -> PaidEvaluation:
    """What the noisy mean count error tells, with 95 % intervals; the upper end has 1 more for what `floor` took.

    DP: post-processing.

    Args:
        noisy: The value as drawn, in records.
        sigma: Standard deviation of its noise.
        record_count: The released number of records.
        paid: What was bought.
        marginals: How many marginals.
    """
    inside = count_interval(np.array([noisy], np.int64), sigma)
    error = Estimate(value=max(0, noisy), low=int(inside.low[0]), high=int(inside.high[0]) + 1)
    return PaidEvaluation(
        metric="mean count error of marginals",
        share=paid.share,
        length=paid.length,
        marginals=marginals,
        deviation=sigma,
        level=LEVEL,
        count_error=error,
        mean_l1=_divided(error, record_count, 2.0),
        tvd=_divided(error, 2 * record_count, 1.0),
        about=_ABOUT.format(length=paid.length, marginals=marginals),
    )


def _divided(estimate: Estimate, by: int, most: float) -> Estimate | None:
    """The estimate as a distance, which is `most` at the most whatever the noise says."""
    if not by:
        return None
    value, low, high = (min(most, x / by) for x in (estimate.value, estimate.low, estimate.high))
    return Estimate(value=value, low=low, high=high)
