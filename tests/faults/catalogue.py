"""All planted faults, by name."""

from __future__ import annotations

from tests.faults.fault import Fault
from tests.faults.planted import (
    accounting,
    answers,
    counting,
    drawing,
    keyed,
    known,
    leaks,
    linked,
    noise,
    preparation,
    restoring,
    rounds,
    rules,
    thresholds,
)

SECTIONS: dict[str, tuple[Fault, ...]] = {
    "Budget": accounting.FAULTS,
    "Noise": noise.FAULTS,
    "Keys, addresses and choices": keyed.FAULTS,
    "Thresholds and empty cells": thresholds.FAULTS,
    "Bounded contributions and counts": counting.FAULTS,
    "Preparation and domains": preparation.FAULTS,
    "Linked tables": linked.FAULTS,
    "Marginals chosen in rounds": rounds.FAULTS,
    "Rules between columns": rules.FAULTS,
    "Known totals": known.FAULTS,
    "Charges and draws": drawing.FAULTS,
    "A restored ledger, and answers that are lost": restoring.FAULTS,
    "What leaves": leaks.FAULTS,
    "Answers with intervals": answers.FAULTS,
}
FAULTS: dict[str, Fault] = {fault.name: fault for faults in SECTIONS.values() for fault in faults}
