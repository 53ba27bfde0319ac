"""Hook for Great Expectations: a suite file on the raw input or on the synthetic output, pass or fail and nothing else."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import plain_table
from marginweave.sources.suites import read_suite

from .contracts import arrow_frame

if TYPE_CHECKING:
    import pandas as pd


class Suite:
    """A suite of expectations that is run on tables, one after the other; raises InputError as `read_suite`."""

    def __init__(self, path: Path, *, raw_input: bool) -> None:
        self._path, self._raw_input = path, raw_input
        self._expectations = read_suite(path, raw_input=raw_input)

    def broken(self, table: pa.Table) -> list[str]:
        """What does not hold, each as its column and type: it is run with BOOLEAN_ONLY results, and all else is dropped.

        Raises:
            InputError: Great Expectations cannot run it on this table.
        """
        try:
            batch, suite = self._prepared
            parameters = {"dataframe": self._frame(table)}
            outcome = batch.get_batch(parameters).validate(suite, result_format="BOOLEAN_ONLY")
        except Exception as error:
            fault = type(error).__name__
        else:
            return [_named(result.expectation_config) for result in outcome.results if not result.success]
        raise InputError(f"expectation suite ({self._path}) cannot be run by Great Expectations ({fault})")

    def _frame(self, table: pa.Table) -> pd.DataFrame:
        """Cells of the source as they are; records as pandas reads them from a file, which expectations of a type rely on."""
        frame: pd.DataFrame = arrow_frame(plain_table(table)) if self._raw_input else table.to_pandas()
        return frame

    @cached_property
    def _prepared(self) -> tuple[Any, Any]:
        """Where a frame is put, and the expectations as Great Expectations has them."""
        import great_expectations as gx  # 3 to 6 s
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.data_context.types.base import (
            DataContextConfig,
            InMemoryStoreBackendDefaults,
            ProgressBarsConfig,
        )

        # No folder for Data Docs, which would hold results and load scripts from elsewhere.
        stores = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
        bars = ProgressBarsConfig(globally=False)
        settings = DataContextConfig(store_backend_defaults=stores, progress_bars=bars, analytics_enabled=False)
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        context = gx.get_context(mode="ephemeral", project_config=settings)
        asset = context.data_sources.add_pandas("frame").add_dataframe_asset("table")
        return asset.add_batch_definition_whole_dataframe("all"), ExpectationSuite(
            name="suite", expectations=self._expectations
        )


def _named(expectation: Any) -> str:
    kwargs = expectation.kwargs
    return f"column {str(kwargs.get('column') or kwargs.get('column_A') or 'table')!r} breaks {expectation.type}"
