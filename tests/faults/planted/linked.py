"""Faults of columns that follow from the rows of linked tables."""

from __future__ import annotations

from tests.faults.fault import Fault

_SOURCE = "src/marginweave/linked/source.py"
_COLUMNS = "src/marginweave/linked/derivations.py"
_CELLS = "tests/unit/linked/test_derivations.py"
_LAWS = "tests/laws/test_linked_tables.py"
_COUNTS = "src/marginweave/measurements/linked_counts.py"
_COUNTED = "tests/laws/test_linked_counts.py"
_CHECKS = "src/marginweave/configuration/linked_checks.py"

_UNDECLARED = "tests/unit/inference/test_linked_undeclared.py"
_ROWS = "tests/laws/test_linked_rows.py"
_DRAFTS = "tests/laws/test_linked_drafts.py"
_ACCOUNTS = "tests/laws/test_one_account_of_each_table.py"

FAULTS = (
    Fault(
        name="synthetic rows of a later block belong to the records of the first",
        file="src/marginweave/records/nested.py",
        text="np.arange(start, start + len(table), dtype=np.int64), to_numpy(",
        instead="np.arange(1, 1 + len(table), dtype=np.int64), to_numpy(",
        killed_by=(f"{_ROWS}::test_every_foreign_key_has_its_parent",),
    ),
    Fault(
        name="derived columns of synthetic records do not follow from their rows",
        file="src/marginweave/records/linked_rows.py",
        text="            draft.agree()\n",
        instead="",
        killed_by=(f"{_ROWS}::test_derived_columns_follow_from_rows",),
    ),
    Fault(
        name="a draft has the number of rows that belong to nobody",
        file="src/marginweave/drafts/draft_text.py",
        text="{rule}  # {derived.remark}",
        instead="{rule}  # {derived.remark}, {table.link.orphans}",
        killed_by=(f"{_DRAFTS}::test_no_count_of_rows_without_a_unit_is_in_the_draft",),
    ),
    Fault(
        name="a suggested column is released without an answer",
        file="src/marginweave/drafts/draft_text.py",
        text='yaml_line({**derived.rule, "confirm": True})',
        instead="yaml_line({**derived.rule})",
        killed_by=(f"{_DRAFTS}::test_a_draft_of_several_files_fits_them",),
    ),
    Fault(
        name="columns of one name are a key, whatever ids they have",
        file="src/marginweave/drafts/found_keys.py",
        text="    if link.linked < _KNOWN * max(link.ids.filled, 1):\n        return False\n",
        instead="",
        killed_by=(f"{_DRAFTS}::test_tables_without_a_key_are_refused",),
    ),
    Fault(
        name="the ledger compares all tables of a release together, and none alone",
        file="src/marginweave/ledger/keys.py",
        text="        if len(self.tables) == 1:\n            return []\n",
        instead="        if self.tables:\n            return []\n",
        killed_by=(
            f"{_ACCOUNTS}::test_a_source_is_refused_for_each_table_that_was_released",
            f"{_ACCOUNTS}::test_no_way_leads_around_the_account",
        ),
    ),
    Fault(
        name="equal tables of one release are marked alike",
        file="src/marginweave/ledger/keys.py",
        text='return f"{release_id}/{place}"',
        instead="return release_id",
        killed_by=(f"{_ACCOUNTS}::test_marks_tell_nothing_of_equal_tables",),
    ),
    Fault(
        name="a row of a linked table whose id no row of the source has counts for the next unit",
        file=_SOURCE,
        text="is_known = has_id & (self._units[np.minimum(places, len(self) - 1)] == digests)",
        instead="is_known = has_id & (places < len(self))",
        killed_by=(
            f"{_CELLS}::test_ids_are_compared_as_the_unit_compares_them",
            f"{_LAWS}::test_a_unit_changes_no_row_of_another",
        ),
    ),
    Fault(
        name="ids of linked tables are compared with their blanks",
        file="src/marginweave/prepare/rows.py",
        text="        trimmed = text.strip()\n",
        instead="        trimmed = text\n",
        killed_by=(
            f"{_CELLS}::test_ids_are_compared_as_the_unit_compares_them",
            "tests/unit/prepare/test_subjects.py::test_ids_compare_as_trimmed_texts",
        ),
    ),
    Fault(
        name="rows without an id are one person's",
        file=_SOURCE,
        text="        return _as_bytes(words), has_id\n",
        instead="        return _as_bytes(words), np.ones_like(has_id)\n",
        killed_by=(f"{_CELLS}::test_nobody_has_the_rows_without_an_id",),
    ),
    Fault(
        name="near dates of different units are one unit's",
        file=_COLUMNS,
        text="    width = high - low + 1\n",
        instead="    width = 1\n",
        killed_by=(
            f"{_LAWS}::test_near_rows_are_those_of_all_pairs",
            f"{_LAWS}::test_a_unit_changes_no_row_of_another",
        ),
    ),
    Fault(
        name="a stay is a readmission after itself",
        file=_COLUMNS,
        text="        number -= (own != NO_DATE) & (own <= ends) & (own >= ends - most)\n",
        instead="",
        killed_by=(
            f"{_CELLS}::test_a_row_is_not_readmitted_to_itself",
            f"{_LAWS}::test_near_rows_are_those_of_all_pairs",
        ),
    ),
    Fault(
        name="a linked cell without a value meets a condition",
        file=_COLUMNS,
        text="*(label in met for label in labels), False]",
        instead="*(label in met for label in labels), True]",
        killed_by=(
            f"{_CELLS}::test_a_cell_that_is_not_as_declared_meets_no_condition_and_is_no_end",
        ),
    ),
    Fault(
        name="a linked cell that is not as declared meets no condition",
        file=_COLUMNS,
        text="            may_meet &= is_met | self.undeclared(name)\n",
        instead="            may_meet &= is_met\n",
        killed_by=(f"{_LAWS}::test_a_value_is_not_as_declared_where_another_cell_could_change_it",),
    ),
    Fault(
        name="a row whose dates are not as declared may be a readmission after itself",
        file=_COLUMNS,
        text="starts * ends - both for",
        instead="starts * ends for",
        killed_by=(f"{_LAWS}::test_a_value_is_not_as_declared_where_another_cell_could_change_it",),
    ),
    Fault(
        name="derived cells that are not as declared are counted as missing",
        file="src/marginweave/prepare/codes.py",
        text="        if flags and len(attribute.gaps) > 1:\n",
        instead="        if False:\n",
        killed_by=(
            f"{_LAWS}::test_a_unit_whose_cells_are_not_as_declared_is_one_record_with_that_code",
        ),
    ),
    Fault(
        name="a linked column is clamped to other bounds than the derived column says",
        file="src/marginweave/configuration/linked_checks.py",
        text="    if low > wanted_low or high < wanted_high:\n",
        instead="    if False:\n",
        killed_by=("tests/unit/configuration/test_linked.py::test_what_does_not_fit_is_refused",),
    ),
    Fault(
        name="the digest of a release's input leaves out linked tables",
        file="src/marginweave/linked/places.py",
        text='{"": self.root, **self.linked}.items()',
        instead='{"": self.root}.items()',
        killed_by=(f"{_CELLS}::test_the_digest_is_of_all_tables",),
    ),
    Fault(
        name="a release of a linked table and an example is charged to the ledger of examples",
        file="src/marginweave/linked/places.py",
        text="        if configuration.tables is not None and source.startswith(EXAMPLE_PREFIX):\n",
        instead="        if False:\n",
        killed_by=(
            "tests/unit/linked/test_requests.py::test_a_linked_table_is_never_charged_to_the_ledger_of_examples",
        ),
    ),
    Fault(
        name="the rows of a unit weigh more than one together",
        file=_COUNTS,
        text="whole[owners] + (rows.ranks < rest[owners])",
        instead="whole[owners] + (rest[owners] > 0)",
        killed_by=(
            f"{_COUNTED}::test_the_rows_of_a_unit_weigh_one_together",
            f"{_COUNTED}::test_no_unit_moves_a_histogram_further_than_its_sensitivity",
        ),
    ),
    Fault(
        name="one row of a unit more than its bound is counted",
        file=_COUNTS,
        text="(rows.ranks < mass).astype(np.int64)",
        instead="(rows.ranks <= mass).astype(np.int64)",
        killed_by=(
            f"{_COUNTED}::test_at_most_so_many_rows_of_a_unit_are_counted",
            f"{_COUNTED}::test_no_unit_moves_a_histogram_further_than_its_sensitivity",
        ),
    ),
    Fault(
        name="noise on rows of linked tables is made as if a unit were in as many cells as it has rows",
        file=_COUNTS,
        text="l1=mass, l2_squared=mass**2, steps=steps",
        instead="l1=mass, l2_squared=mass, steps=steps",
        killed_by=(f"{_COUNTED}::test_no_unit_moves_a_histogram_further_than_its_sensitivity",),
    ),
    Fault(
        name="each histogram of a linked table has the noise of the whole draw",
        file=_COUNTS,
        text="tuple(self.parameter / math.sqrt(each) for each in shares)",
        instead="tuple(self.parameter for _ in shares)",
        killed_by=(f"{_COUNTED}::test_what_is_charged_covers_the_sensitivity",),
    ),
    Fault(
        name="rows of a linked table that belong to nobody are the last unit's",
        file=_SOURCE,
        text="            is_linked = numbers < len(units)\n",
        instead="            numbers = np.minimum(numbers, max(len(units) - 1, 0))\n"
        "            is_linked = numbers >= 0\n",
        killed_by=(
            f"{_COUNTED}::test_the_rest_of_a_table_does_not_matter",
            f"{_LAWS}::test_a_unit_changes_no_row_of_another",
        ),
    ),
    Fault(
        name="which rows of a unit are counted depends on the rows of other units",
        file="src/marginweave/prepare/nested.py",
        text="words.words_of(owners, self.ranks)",
        instead="words.words_of(owners, np.arange(len(owners)))",
        killed_by=(f"{_COUNTED}::test_the_order_of_a_unit_depends_on_the_unit_alone",),
    ),
    Fault(
        name="rows of a linked table are counted in the order of their file",
        file="src/marginweave/linked/nested.py",
        text="np.lexsort((*reversed(columns), owners))",
        instead="np.argsort(owners, kind='stable')",
        killed_by=(f"{_COUNTED}::test_the_rest_of_a_table_does_not_matter",),
    ),
    Fault(
        name="values of a linked table are discovered, with the threshold of one value where a unit may hold many",
        file=_CHECKS,
        text="        if not isinstance(column, MeasuredColumn) or not column.public_cells:\n",
        instead="        if not isinstance(column, MeasuredColumn):\n",
        killed_by=("tests/unit/configuration/test_linked.py::test_what_does_not_fit_is_refused",),
    ),
    Fault(
        name="a unit with two rows of the source has its rows of a linked table twice",
        file=_CHECKS,
        text="        if privacy.joins or privacy.stability.records > 1:\n",
        instead="        if privacy.joins:\n",
        killed_by=("tests/unit/configuration/test_linked.py::test_what_does_not_fit_is_refused",),
    ),
    Fault(
        name="the number of units with such a row is answered by shares of units",
        file="src/marginweave/inference/linked_answers.py",
        text='question.asked in ("count", "sum") and own',
        instead='question.asked == "sum" and own',
        killed_by=(
            "tests/unit/inference/test_linked_answers.py::test_what_nothing_measured_is_refused",
        ),
    ),
    Fault(
        name="a linked cell that is not as declared is counted as a missing one",
        file="src/marginweave/linked/nested.py",
        text="len(attribute.labels) + len(attribute.gaps) - 1",
        instead="len(attribute.labels)",
        killed_by=(f"{_UNDECLARED}::test_the_code_is_in_each_histogram_of_the_column",),
    ),
    Fault(
        name="a run does not stop where no row of a linked table belongs to anybody",
        file="src/marginweave/linked/usability.py",
        text="        if lost == rows.rows:\n            return cls.NOTHING\n"
        "        return cls.MOST if lost > MOST_UNUSABLE * rows.rows else None\n",
        instead="        return None\n",
        killed_by=(
            "tests/unit/linked/test_usability.py::test_a_lost_linked_table_stops_a_run_and_a_look_says_so",
        ),
    ),
    Fault(
        name="more rows of a linked table are said to be in no count than there are",
        file="src/marginweave/observations/linked_uncounted.py",
        text="math.ceil(ends[0]) - most",
        instead="math.ceil(ends[1]) - most",
        killed_by=(
            "tests/unit/inference/test_linked_uncounted.py::test_wide_bins_tell_a_lower_bound",
        ),
    ),
)
