"""Metrics of a home for a monitor: one file in the format of Prometheus, for node_exporter's textfile collector.

It names datasets, how attempts ended and when, and public totals of accounts, rounded; nothing of a table. The file is the only
record of its samples: each writer reads them under a lock, and changes those that it has newer values of. No release waits for
it or fails because of it. Whether a release fails can depend on the data, so the file is the operator's alone, like the home.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from marginweave.base.durable import PRIVATE_MODE, read_file, replace_file
from marginweave.base.errors import AuditError, BudgetError, MarginweaveError, StageError
from marginweave.ledger import Ledger, LedgerLocation
from marginweave.ledger.admission import rounded_down, rounded_up
from marginweave.ledger.boxes import spent_share
from marginweave.released.manifest import RunState
from marginweave.runs.lookup import exclusive_lock
from marginweave.runs.progress import Ending
from marginweave.runs.request import Request, was_skipped

_Key = tuple[str, tuple[tuple[str, str], ...]]
_Change = Callable[[dict[_Key, float]], None]


class Metric(StrEnum):
    """The names of the samples in the file."""

    ATTEMPTS = "marginweave_attempts_total"
    LAST_ATTEMPT = "marginweave_last_attempt_timestamp_seconds"
    LEFT = "marginweave_budget_left_ratio"
    SPENT = "marginweave_budget_spent_epsilon"
    CAP = "marginweave_budget_cap_epsilon"
    VERIFIED = "marginweave_ledger_verification_timestamp_seconds"
    SOUND = "marginweave_ledger_verification_success"


_ABOUT = {
    Metric.ATTEMPTS: "Attempts at releases of a dataset, by how they ended.",
    Metric.LAST_ATTEMPT: "When an attempt at a release of a dataset last ended in this way.",
    Metric.LEFT: "Part of the account's box that is left, from 0 to 1: of what runs out first.",
    Metric.SPENT: "Epsilon that the account has spent, at the delta of its cap.",
    Metric.CAP: "Epsilon of the account's cap.",
    Metric.VERIFIED: "When the ledger was last verified by `marginweave ledger verify`.",
    Metric.SOUND: "1 where that found no fault, 0 otherwise.",
}
# attempts that ended well, without a release so far, or without a new one
_AWAITING = "awaiting_approval"
_SKIPPED = "skipped"


def metrics_file(home: Path) -> Path:
    """Return the path of the file, which exists once something was released in the home or is served from it."""
    return home / ".marginweave" / "metrics.prom"


@contextmanager
def counted(request: Request) -> Iterator[None]:
    """Count an attempt at a release by its ending, and write down the budgets that remain after it.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    ending = str(Ending.FINISHED)
    location = request.ledger_location
    try:
        yield
        manifest = request.folder.read_manifest()
        if manifest is not None and manifest.state == RunState.AWAITING:
            ending = _AWAITING
        elif manifest is None and was_skipped(request.folder):
            ending = _SKIPPED
    except BaseException as error:
        ending = Ending.of(error)
        raise
    finally:
        labels = {"dataset": request.configuration.dataset, "outcome": ending}

        def count_attempt(samples: dict[_Key, float]) -> None:
            attempts = _key(Metric.ATTEMPTS, labels)
            samples[attempts] = samples.get(attempts, 0) + 1
            samples[_key(Metric.LAST_ATTEMPT, labels)] = int(time.time())

        write_metrics(request.folder.home, location, count_attempt)


@contextmanager
def verification_noted(home: Path, location: LedgerLocation) -> Iterator[None]:
    """Write down that the ledger was verified inside this context, and whether it had no fault."""

    def note(sound: int) -> None:
        times = {_key(Metric.VERIFIED): int(time.time()), _key(Metric.SOUND): sound}
        write_metrics(home, location, lambda samples: samples.update(times))

    try:
        yield
    except (AuditError, BudgetError, StageError):
        note(0)
        raise
    note(1)


def last_verification(home: Path) -> tuple[datetime, bool] | None:
    """Return when the ledger was last verified from a home, and whether it had no fault; None if it was never verified."""
    samples = _samples(read_file(metrics_file(home)) or b"")
    moment = samples.get(_key(Metric.VERIFIED))
    if moment is None:
        return None
    is_sound = bool(samples.get(_key(Metric.SOUND)))
    return datetime.fromtimestamp(moment, UTC), is_sound


def write_metrics(home: Path, location: LedgerLocation, change: _Change = lambda _: None) -> None:
    """Apply a change to the samples of a home, and update the totals of all accounts of the ledger where it can be read.

    A folder without `runs/`, where nothing is served either, is no home: nothing is written there.
    """
    place = metrics_file(home)
    # nothing that goes wrong here is a reason to stop a release, or to hide why it stopped
    with suppress(Exception):
        if not (place.parent.is_dir() or (home / "runs").is_dir()):
            return
        with exclusive_lock(place.with_suffix(".lock"), None):
            samples = _samples(read_file(place) or b"")
            change(samples)
            with suppress(MarginweaveError):
                samples.update(_budgets(location))
            replace_file(place, _text(samples), PRIVATE_MODE)


def _budgets(location: LedgerLocation) -> dict[_Key, float]:
    """Return the remaining and the spent budget of each account, rounded to its disadvantage. DP: public totals."""
    samples = {}
    for total in Ledger.open(location).accounts.totals():
        labels = {"dataset": total.account.dataset}
        share_left = max(0.0, 1 - spent_share(total))
        samples[_key(Metric.LEFT, labels)] = float(rounded_down(share_left))
        samples[_key(Metric.SPENT, labels)] = float(rounded_up(total.epsilon))
        samples[_key(Metric.CAP, labels)] = float(total.account.epsilon)
    return samples


def _key(name: str, labels: Mapping[str, str] | None = None) -> _Key:
    pairs = sorted((labels or {}).items())
    return str(name), tuple(pairs)


def _samples(content: bytes) -> dict[_Key, float]:
    """Return the samples of a file; none if it is damaged."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(content.decode()))
    except ValueError:
        return {}
    samples = {}
    for family in families:
        for sample in family.samples:
            if sample.name in _ABOUT:
                samples[_key(sample.name, sample.labels)] = sample.value
    return samples


def _text(samples: Mapping[_Key, float]) -> bytes:
    """Return the samples in Prometheus's format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client import Metric as Family
    from prometheus_client.registry import Collector

    class SampleCollector(Collector):
        """The samples, each metric with its type and its description."""

        def collect(self) -> Iterator[Family]:
            for name, about in _ABOUT.items():
                kind = "counter" if name.endswith("_total") else "gauge"
                family = Family(name.removesuffix("_total"), about, kind)
                for sample_name, labels in sorted(samples):
                    if sample_name == name:
                        family.add_sample(name, dict(labels), samples[sample_name, labels])
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector())
    return generate_latest(registry)
