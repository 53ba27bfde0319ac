"""Faults of the bits that noise is made of, of their addresses, and of choices that are made from them."""

from __future__ import annotations

from tests.faults.fault import Fault

_KEYED = "tests/laws/test_keyed_noise.py::"
_ORDER = _KEYED + "test_words_do_not_depend_on_chunks_or_order"
_THREADS = _KEYED + "test_threads_make_the_same_noise"
_MEMORY = _KEYED + "test_a_level_does_not_depend_on_memory_cores_and_blocks"
_OTHERS = _KEYED + "test_words_of_other_addresses_are_independent"
_DIGEST = _KEYED + "test_a_level_that_is_another_has_another_digest"
_KNOWN = "tests/laws/test_known_noise.py::test_known_words"
_CERTAIN = "tests/laws/test_exponential.py::test_a_choice_is_certain_only_where_the_infinite_number_makes_it"
_WORDS = 'return _words(lambda block: self._key("cells", (table,), block), start, count)'

FAULTS = (
    Fault(
        name="words are streamed: a call continues where the last one ended",
        file="src/marginweave/mechanisms/randomness.py",
        text=_WORDS,
        instead='self.__dict__["_read"] = (start := self.__dict__.get("_read", 0)) + count\n        '
        + _WORDS,
        killed_by=(_ORDER, _THREADS),
    ),
    Fault(
        name="what the draw is does not enter the key",
        file="src/marginweave/mechanisms/randomness.py",
        text="encoded(NOISE_FORMAT, len(context), *context, purpose,",
        instead="encoded(NOISE_FORMAT, purpose,",
        killed_by=(
            _OTHERS,
            "tests/unit/mechanisms/test_randomness.py::test_contexts_that_look_alike_are_told_apart",
        ),
    ),
    Fault(
        name="strings and numbers of a context run into each other",
        file="src/marginweave/mechanisms/randomness.py",
        text='return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))',
        instead='return ",".join(map(str, parts))',
        killed_by=(
            "tests/unit/mechanisms/test_randomness.py::test_no_two_contexts_have_the_same_encoding",
            "tests/unit/mechanisms/test_randomness.py::test_contexts_that_look_alike_are_told_apart",
        ),
    ),
    Fault(
        name="all tables of a draw have the same words",
        file="src/marginweave/mechanisms/randomness.py",
        text='self._key("cells", (table,), block)',
        instead='self._key("cells", (0,), block)',
        killed_by=(
            _OTHERS,
            "tests/laws/test_independence.py::test_cells_that_are_visited_and_those_that_are_not",
        ),
    ),
    Fault(
        name="ties are settled by bits that other cells have as well",
        file="src/marginweave/mechanisms/randomness.py",
        text='self._key("ties", (table,), block)',
        instead='self._key("cells", (table,), block)',
        killed_by=(_OTHERS,),
    ),
    Fault(
        name="one key enciphers a table of any length",
        file="src/marginweave/mechanisms/randomness.py",
        text="BLOCKS_A_KEY = 1 << 20",
        instead="BLOCKS_A_KEY = 1 << 24",
        killed_by=(
            "tests/unit/mechanisms/test_randomness.py::test_no_key_enciphers_more_than_2_to_the_20_blocks",
            _KNOWN,
        ),
    ),
    Fault(
        name="the representation of a draw's noise shows its seed",
        file="src/marginweave/mechanisms/randomness.py",
        text="seed: bytes = field(repr=False)",
        instead="seed: bytes",
        killed_by=("tests/unit/mechanisms/test_randomness.py::test_a_seed_is_never_told",),
    ),
    Fault(
        name="the noise of a cell depends on how much memory there is",
        file="src/marginweave/measurements/levels.py",
        text="        start += len(cells)\n",
        instead="        start += 0\n",
        killed_by=(_MEMORY,),
    ),
    Fault(
        name="all sets of columns of a level have the same noise",
        file="src/marginweave/measurements/levels.py",
        text="_noised(counted, mechanism.sigma, bits, table)",
        instead="_noised(counted, mechanism.sigma, bits, 0)",
        killed_by=(
            "tests/laws/test_keyed_noise.py::test_the_noise_of_a_set_of_columns_has_its_number_and_places",
        ),
    ),
    Fault(
        name="each block of empty cells passes as the first one does",
        file="src/marginweave/mechanisms/zero_cells.py",
        text="bits.stream(_POSITIONS, number)",
        instead="bits.stream(_POSITIONS, 0)",
        killed_by=(
            "tests/laws/test_keyed_noise.py::test_blocks_of_zeros_have_streams_of_their_own",
        ),
    ),
    Fault(
        name="values that a rule tells apart are one kind",
        file="src/marginweave/domain/zeros.py",
        text="kind_of_lists.setdefault(tuple(lists), len(kind_of_lists))",
        instead="kind_of_lists.setdefault(tuple(lists[:1]), len(kind_of_lists))",
        killed_by=(
            "tests/laws/test_rules_between_columns.py::test_values_that_only_some_rules_tell_apart_are_told_apart",
        ),
    ),
    Fault(
        name="the limit of ways in which rules tie columns is found after the charge",
        file="src/marginweave/runs/limits.py",
        text="    if forbidden:\n        Repair",
        instead="    if not forbidden:\n        Repair",
        killed_by=(
            "tests/laws/test_rules_between_columns.py::test_rules_that_tie_too_much_are_refused_before_anything_is_charged",
        ),
    ),
    Fault(
        name="a digest of what a level is given says nothing of its empty candidates",
        file="src/marginweave/measurements/digests.py",
        text="for keys in (candidates.survivors, candidates.forbidden):",
        instead="for keys in ():",
        killed_by=(_DIGEST,),
    ),
    Fault(
        name="a digest of what a level is given says nothing of its thresholds",
        file="src/marginweave/measurements/digests.py",
        text="[mechanism.threshold, mechanism.private_threshold, mechanism.raised_from]",
        instead="[]",
        killed_by=(_DIGEST,),
    ),
    Fault(
        name="a digest runs arrays together",
        file="src/marginweave/base/digests.py",
        text="    add_json(digest, list(array.shape))\n",
        instead="",
        killed_by=("tests/laws/test_keyed_noise.py::test_shapes_types_and_labels_count",),
    ),
    Fault(
        name="a choice has twice the epsilon that is charged",
        file="src/marginweave/mechanisms/gaussian.py",
        text="Fraction(epsilon) / (2 * sensitivity)",
        instead="Fraction(epsilon) / sensitivity",
        killed_by=(
            "tests/laws/test_percentile.py::test_drawn_choices_follow_the_exponential_mechanism",
            "tests/laws/test_exponential.py::test_opendp_chooses_alike",
        ),
    ),
    Fault(
        name="a weight below the last bit of a choice is rounded to nothing",
        file="src/marginweave/mechanisms/exponential.py",
        text="        if not complete:\n            return None\n",
        instead="",
        killed_by=("tests/laws/test_exponential.py::test_no_weight_is_rounded_to_nothing",),
    ),
    Fault(
        name="a choice is made by weights that are rounded, without a look at what was cut off",
        file="src/marginweave/mechanisms/exponential.py",
        text="if place and below << precision > uniform * total:",
        instead="if place and False:",
        killed_by=(_CERTAIN,),
    ),
    Fault(
        name="a choice that is open is drawn again",
        file="src/marginweave/mechanisms/exponential.py",
        text="uniform = uniform << precision | stream.integer(precision)",
        instead="uniform = stream.integer(2 * precision)",
        killed_by=(
            "tests/laws/test_exponential.py::test_choices_that_are_refined_have_the_same_probabilities",
        ),
    ),
    Fault(
        name="of candidates with one score the first is chosen",
        file="src/marginweave/mechanisms/exponential.py",
        text="places[uniform_numbers(1, len(places), bits.stream(_PLACE))[0]]",
        instead="places[0]",
        killed_by=("tests/laws/test_exponential.py::test_choices_have_the_exact_probabilities",),
    ),
)
