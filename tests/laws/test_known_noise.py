"""Known answers: what a seed and a context make, written down.

Another version of a library, or a processor of another kind, that made other bytes could not repeat a draw that it finds begun.
Whoever changes them on purpose gives `NOISE_FORMAT` or `SAMPLER_FORMAT` another name.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from marginweave.base.digests import counts_digest
from marginweave.counts.candidates import CandidateSet
from marginweave.measurements.digests import level_digest
from marginweave.measurements.levels import LevelMechanism
from marginweave.mechanisms.gaussian import add_noise, select_candidate
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.randomness import DrawBits
from marginweave.mechanisms.zero_cells import passing_noise, passing_zeros
from tests.support.counting import WholeCounts
from tests.support.level_draws import surviving_values
from tests.support.seeded_bits import SeededBits

BITS = DrawBits(seed=bytes(range(32)), context=("release", 1, "level-2"))
LAST = 2**21  # words of a key
MECHANISM = LevelMechanism(length=2, contribution_bound=2, sigma=Fraction(3), threshold=4)

KNOWN_WORDS = ["0x4aa5940d46d95401", "0xd31c872478d3ca53", "0x29325c8c7063be58"]
KNOWN_ACROSS_KEYS = ["0x4d86eda3f795e899", "0x600ec6aa47fa1477"]
KNOWN_REST = "0x1ea489f2936f972f7"
KNOWN_STREAM = ["0xf4586bc0bd75b582", "0x9c9f4c319fd883b6"]
KNOWN_NOISE = {
    "1": [0, 0, -1, -1, 1, 1, 0, 0],
    "20": [4, -3, -12, -16, 12, 19, 5, -4],
    "300": [60, -38, -181, -233, 187, 291, 75, -61],
    "8191/3": [550, -348, -1646, -2120, 1705, 2651, 681, -554],
}
KNOWN_TABLES = {
    "1/2": "f1a75607a3e0fcc6c01227325a3954e93fe143751c0118f232f0dc43ce61e0a6",
    "20": "aba97d01ebef1feb3b69d4ec37dd0787a73718b6a95e2d07ad605aa3e3c0d1a4",
    "300": "0a41a27be6f5130b6d3a854f441752b3126bf2ae69bc27bfd26bbd978f1ce73f",
}
KNOWN_ZEROS = [264, 290, 413, 465, 665, 710, 772, 792, 968, 977]
KNOWN_TAIL = [11, 13, 10, 11, 10, 10, 11, 10]
KNOWN_CHOICES = [587, 686, 528, 409, 198, 482, 858, 33]
KNOWN_COUNTS = "db7d42da1ca4bda3a4f824f2f81e6ab6e95f34fe3c9079142d33625c492dbc96"
KNOWN_LEVEL = "fe5aed67a021d411e28a5d9388b3dce58cfd810b017352dcf34c3d357a9cdcee"


def test_known_words() -> None:
    assert [hex(word) for word in BITS.words(0, 0, 3).tolist()] == KNOWN_WORDS
    assert [hex(word) for word in BITS.words(5, LAST - 1, 2).tolist()] == KNOWN_ACROSS_KEYS
    assert hex(BITS.rest(5, LAST)) == KNOWN_REST
    assert [hex(word) for word in BITS.stream(1, 2).words(2).tolist()] == KNOWN_STREAM


def test_known_noise() -> None:
    """What is released is fixed by seed and context, to the last bit: by the tables and the sampler as well."""
    for deviation, known in KNOWN_NOISE.items():
        assert (
            add_noise(np.zeros(8, np.int64), Fraction(deviation), BITS, table=2).tolist() == known
        )
    for deviation, digest in KNOWN_TABLES.items():
        assert noise_table(Fraction(deviation)).digest == digest


def test_known_zeros_and_choices() -> None:
    found = [
        (begin, offsets.tolist()) for begin, offsets in passing_zeros(1000, 10, Fraction(4), BITS)
    ]
    assert found == [(0, KNOWN_ZEROS)]
    assert passing_noise(8, 10, Fraction(4), BITS, 3).tolist() == KNOWN_TAIL
    scores = (np.arange(1000) * 7919) % 1009
    assert [select_candidate(scores, 20, 1.0, SeededBits(i)) for i in range(8)] == KNOWN_CHOICES


def test_known_digests() -> None:
    """As the ledger has them."""
    assert counts_digest([np.arange(5), np.array([[-1]])]) == KNOWN_COUNTS
    candidates = CandidateSet.above(surviving_values((2, 3)), (2, 3))
    counts = WholeCounts(
        column_sets=((0, 1),), cells=(np.array([1, 4]),), counts=(np.array([2, 9]),)
    )
    assert level_digest(counts, candidates, MECHANISM) == KNOWN_LEVEL
