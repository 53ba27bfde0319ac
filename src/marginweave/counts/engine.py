"""Engine of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from marginweave.base.parallel import Engine, LocalEngine
from marginweave.checkpoints.spill import remove_scratch
from marginweave.configuration.execution import EngineSettings
from marginweave.configuration.release import Configuration


@contextmanager
def open_engine(
    settings: EngineSettings,
    certificates: Sequence[Path],
    private: Path,
) -> Iterator[Engine]:
    """Yield the engine that a configuration declares, for as long as a stage needs it; it may write to the `private` folder.

    Raises:
        StageError: its cluster cannot be used.
    """
    if settings.dask is None:
        yield LocalEngine()
        return
    from marginweave.counts.cluster import dask_engine  # an extra

    with dask_engine(settings, certificates, private) as engine:
        yield engine


def prepare_engine(
    configuration: Configuration,
    certificates: Sequence[Path],
    private: Path,
) -> None:
    """Before anything is charged, refuse a declared cluster that cannot be used, and remove files of a killed attempt.

    Raises:
        StageError: there is no scheduler or worker, or a worker has another version.
    """
    remove_scratch(private)
    settings = configuration.engine
    # marginals are counted on this machine
    if settings.elsewhere and configuration.marginals is None:
        from marginweave.counts.cluster import check_workers, dask_engine

        with dask_engine(settings, certificates, private) as engine:
            check_workers(engine)
