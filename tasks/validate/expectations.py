"""Hook for Great Expectations: a suite file on the raw input or on the synthetic output, pass or fail and nothing else."""

from __future__ import annotations

import json
import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginweave.schemas.configuration.yaml_source import read_text
from marginweave.schemas.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# Everything else looks at a statistic of the private rows; whether it holds would be published for free.
_CELLS = (
    *("be_between", "be_in_set", "be_in_type_list", "be_null", "be_of_type", "match_regex", "match_regex_list"),
    *("not_be_in_set", "not_be_null", "not_match_regex"),
)
_ROW_WISE = (
    *(f"expect_column_values_to_{rule}" for rule in _CELLS),
    *("expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal"),
    *(f"expect_column_pair_values_{rule}" for rule in ("a_to_be_greater_than_b", "to_be_equal", "to_be_in_set")),
    *("expect_column_to_exist", "expect_table_columns_to_match_ordered_list", "expect_table_columns_to_match_set"),
)

_ROW_WISE_KEYS = {
    *("column", "column_A", "column_B", "column_set", "column_list", "exact_match"),
    *("value_set", "value_pairs_set", "min_value", "max_value", "strict_min", "strict_max", "value", "or_equal"),
    *("regex", "regex_list", "match_on", "type_", "type_list", "ignore_row_if"),
}


def read_suite(path: Path, *, raw_input: bool) -> list[dict[str, Any]]:
    """The expectations of a suite file; on raw input only those that look at one row at a time.

    Raises:
        InputError: the file is absent or no suite, or asks for a statistic of the raw input.
    """
    try:
        suite = json.loads(read_text(path, "expectation suite"))
        expectations = [{"type": str(e["type"]), "kwargs": dict(e.get("kwargs", {}))} for e in suite["expectations"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"expectation suite ({path}) must be the JSON of a Great Expectations suite") from None
    for expectation in expectations:
        if raw_input and (expectation["type"] not in _ROW_WISE or set(expectation["kwargs"]) - _ROW_WISE_KEYS):
            raise InputError(
                f"expectation suite ({path}): {expectation['type']} is refused on raw input; what it tells is a statistic "
                "of private rows. Only expectations on every single row are allowed, without 'mostly' or a row condition"
            )
    return expectations


class Suite:
    """A suite of expectations that is run on frames, one after the other; raises InputError as `read_suite`."""

    def __init__(self, path: Path, *, raw_input: bool) -> None:
        self._path = path
        self._expectations = read_suite(path, raw_input=raw_input)

    def broken(self, frame: pd.DataFrame) -> list[str]:
        """What does not hold, each as its column and type: it is run with BOOLEAN_ONLY results, and all else is dropped.

        Raises:
            InputError: Great Expectations cannot run it on this frame.
        """
        try:
            batch, suite = self._prepared
            outcome = batch.get_batch({"dataframe": frame}).validate(suite, result_format="BOOLEAN_ONLY")
        except Exception as error:
            fault = type(error).__name__
        else:
            return [_named(result.expectation_config) for result in outcome.results if not result.success]
        raise InputError(f"expectation suite ({self._path}) cannot be run by Great Expectations ({fault})")

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
        settings = DataContextConfig(store_backend_defaults=stores, progress_bars=bars)
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        context = gx.get_context(mode="ephemeral", project_config=settings)
        asset = context.data_sources.add_pandas("frame").add_dataframe_asset("table")
        return asset.add_batch_definition_whole_dataframe("all"), ExpectationSuite(
            name="suite", expectations=self._expectations
        )


def _named(expectation: Any) -> str:
    kwargs = expectation.kwargs
    return f"column {str(kwargs.get('column') or kwargs.get('column_A') or 'table')!r} breaks {expectation.type}"
