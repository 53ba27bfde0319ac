"""Make the sentences of `marginweave plan`, whose texts are in `plan.toml`."""

from __future__ import annotations

from functools import partial

from marginweave.texts.sentences import Sentence, sentence

plan_sentence = partial(sentence, "plan")


def sd_span(least: float, most: float) -> Sentence:
    """Return standard deviations from the least to the most, with one decimal; one where they are shown alike."""
    is_one = round(float(least), 1) == round(float(most), 1)
    return plan_sentence("span.sd" if is_one else "span.sds", least=least, most=most)
