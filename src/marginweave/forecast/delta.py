"""Compare delta with the declared number of rows before anything is charged."""

from __future__ import annotations

import math

from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of
from marginweave.forecast.changes import changed
from marginweave.forecast.expected import known_rows
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.texts.sentences import Sentence


def delta_forecast(configuration: Configuration) -> list[Sentence]:
    """Return whether delta is large for the public number of rows n, and what to write instead.

    Nothing where the rows are not public, or delta is at most n^-1.5. At 1/n a release that shows one of n records meets the
    definition. The report says the same of the noisy number of records (`publish/wording.py`). DP: arithmetic on public facts.
    """
    rows = configuration.rows or known_rows(configuration)
    delta = configuration.privacy.delta
    if rows is None or rows < 2 or delta <= rows**-1.5:
        return []
    key = "delta.of-one" if delta * rows >= 1 else "delta.large"
    sentences = [plan_sentence(key, delta=delta, rows=rows)]
    usual = usual_delta(rows)
    if changed(configuration, privacy_with(configuration, usual)) is not None:
        sentences.append(plan_sentence("delta.write", usual=usual))
    return sentences


def usual_delta(rows: int) -> float:
    """Return the largest number of one digit that is at most rows^-1.5."""
    exponent = math.floor(math.log10(rows**-1.5))
    digit = math.floor(rows**-1.5 / 10.0**exponent)
    return float(f"{max(1, digit)}e{exponent}")


def privacy_with(configuration: Configuration, delta: float) -> dict[str, object]:
    """Return the section `privacy` as written, with another delta."""
    return {"privacy": {**mapping_of(configuration.written)["privacy"], "delta": delta}}
