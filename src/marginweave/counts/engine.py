"""The engine of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from marginweave.base.parallel import Engine, LocalEngine
from marginweave.checkpoints.spill import remove_scratch
from marginweave.draws.references import RunReference


@contextmanager
def open_engine(reference: RunReference) -> Iterator[Engine]:
    """The engine that the configuration of a run declares, for as long as a stage needs it.

    Raises:
        StageError: its cluster cannot be used.
    """
    settings = reference.configuration.engine
    if settings.dask is None:
        yield LocalEngine()
        return
    from marginweave.counts.cluster import dask_engine  # an extra

    with dask_engine(settings, reference.certificates, reference.folder.private) as engine:
        yield engine


def prepare_engine(reference: RunReference) -> None:
    """Before anything is charged: whether a cluster that has to be there already can be used, and no rest of a killed attempt.

    Raises:
        StageError: there is no scheduler or worker, or a worker has another version.
    """
    remove_scratch(reference.folder.private)
    settings = reference.configuration.engine
    if settings.elsewhere and reference.configuration.marginals is None:  # which are counted here
        from marginweave.counts.cluster import check_workers, dask_engine

        with dask_engine(settings, reference.certificates, reference.folder.private) as engine:
            check_workers(engine)
