"""Runs suites of Great Expectations on the raw input or on the synthetic output: pass or fail and nothing else."""

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
        self._path = path
        self._raw_input = raw_input
        self._expectations = read_suite(path, raw_input=raw_input)

    def broken(self, table: pa.Table) -> list[str]:
        """Return the expectations that a table breaks, each as its column and type.

        The suite is run with BOOLEAN_ONLY results, and everything else is dropped.

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
            return [
                _named(result.expectation_config)
                for result in outcome.results
                if not result.success
            ]
        raise InputError(
            f"expectation suite ({self._path}) cannot be run by Great Expectations ({fault})"
        )

    def _frame(self, table: pa.Table) -> pd.DataFrame:
        """Return a frame of the cells of the source as they are, or of records as pandas reads them from a file.

        Expectations of a type rely on pandas' types.
        """
        if self._raw_input:
            return arrow_frame(plain_table(table))
        frame: pd.DataFrame = table.to_pandas()
        return frame

    @cached_property
    def _prepared(self) -> tuple[Any, Any]:
        """Batch definition that takes a frame, and the expectations as objects of Great Expectations."""
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
        settings = DataContextConfig(
            store_backend_defaults=stores, progress_bars=bars, analytics_enabled=False
        )
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        context = gx.get_context(mode="ephemeral", project_config=settings)
        asset = context.data_sources.add_pandas("frame").add_dataframe_asset("table")
        batch = asset.add_batch_definition_whole_dataframe("all")
        return batch, ExpectationSuite(name="suite", expectations=self._expectations)


def _named(expectation: Any) -> str:
    arguments = expectation.kwargs
    column = arguments.get("column") or arguments.get("column_A") or "table"
    return f"column {str(column)!r} breaks {expectation.type}"
