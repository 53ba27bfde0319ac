"""Faults of what happens to rows before they are counted."""

from __future__ import annotations

from tests.faults.fault import Fault

_ROWS = "tests/unit/prepare/test_subjects.py::test_every_choice_of_rows_is_as_likely"
_OTHERS = "tests/unit/prepare/test_subjects.py::test_the_words_of_other_rows_do_not_matter"
_RESIZED = "tests/unit/prepare/test_resize.py::test_90_of_100_at_one_and_a_half"
_UNDECLARED = "tests/unit/prepare/test_undeclared.py"
_COMPUTED = "tests/laws/test_computed_columns.py"
_SPELLED = "tests/unit/columns/test_spelled_cells.py"
_CELLS = "tests/laws/test_cells_by_themselves.py"
_STAYS = "test_rules_are_kept_by_the_other_cells"

_FORMS = "tests/unit/sources/test_forms.py"

FAULTS = (
    Fault(
        name="a quote that is never closed takes every row after it for a part of one value",
        file="src/marginweave/sources/text_source.py",
        text="if has_quotes(source, part, form):",
        instead="if False:",
        killed_by=(
            "tests/unit/sources/test_quotes.py::test_cells_are_those_of_a_strict_reader_and_a_row_of_another_width_has_its_line",
        ),
    ),
    Fault(
        name="the clocks of a zone are behind UTC where they are ahead of it",
        file="src/marginweave/columns/date.py",
        text="in_utc = seconds - offsets",
        instead="in_utc = seconds + offsets",
        killed_by=(f"{_SPELLED}::test_how_a_moment_of_iso_8601_is_read",),
    ),
    Fault(
        name="another spelling of a value counts as the first value",
        file="src/marginweave/configuration/columns/category.py",
        text="[*self.same.values()][spelling]",
        instead="[*self.same.values()][0]",
        killed_by=(f"{_SPELLED}::test_every_spelling_counts_as_its_value",),
    ),
    Fault(
        name="of a subject's rows the first in the file are kept",
        file="src/marginweave/prepare/rows.py",
        text="lowest_words(subjects[over], word[over], most)",
        instead="lowest_words(subjects[over], over, most)",
        killed_by=(_OTHERS,),
    ),
    Fault(
        name="a subject keeps one row more than theta",
        file="src/marginweave/columns/category.py",
        text="rank < most",
        instead="rank <= most",
        killed_by=(
            _ROWS,
            "tests/laws/test_units.py::test_a_subject_changes_at_most_theta_rows_and_all_its_own",
        ),
    ),
    Fault(
        name="the plan of single attributes has no part for the tables that sets have more",
        file="src/marginweave/measurements/one_way.py",
        text="return self.split(configuration, all_cliques(sizes, 1), sizes)",
        instead="return self.split(configuration, all_cliques(sizes[: len(configuration.attributes)], 1), sizes)",
        killed_by=(f"{_UNDECLARED}::test_the_tables_of_sets_share_the_draw_of_single_attributes",),
    ),
    Fault(
        name="which rows are kept depends on the rows of others",
        file="src/marginweave/prepare/rows.py",
        text="lowest_words(subjects[over], word[over], most)",
        instead="lowest_words(subjects[over], word[: len(over)], most)",
        killed_by=(_OTHERS,),
    ),
    Fault(
        name="a resized table has max(m, n) records, not min(m, n)",
        file="src/marginweave/prepare/encode.py",
        text="sample = sample[by_word[: settings.records]]",
        instead="sample = np.arange(max(len(sample), settings.records)) % len(word)",
        killed_by=(_RESIZED,),
    ),
    Fault(
        name="a sample is not cut to the public number of records",
        file="src/marginweave/prepare/encode.py",
        text="    if len(sample) > settings.records:\n",
        instead="    if len(sample) > len(word):\n",
        killed_by=(_RESIZED,),
    ),
    Fault(
        name="a fixed share of the copies is sampled, which moves with a unit that vanishes",
        file="src/marginweave/prepare/encode.py",
        text="sample = np.arange(len(word)) if limit == _WORD else np.flatnonzero(word < np.uint64(limit))",
        instead='sample = np.argsort(word, kind="stable")[: math.floor(settings.rate * len(word))]',
        killed_by=(
            "tests/laws/test_units.py::test_a_copy_is_sampled_whatever_other_rows_there_are",
        ),
    ),
    Fault(
        name="pandas spells the cells of a column together, by what other rows hold",
        file="src/marginweave/runs/frames.py",
        text="    if isinstance(dtype, pd.CategoricalDtype):\n        codes",
        instead=(
            '    if dtype.kind not in native:\n        return pa.array(series.astype("string"), from_pandas=True)\n'
            "    if isinstance(dtype, pd.CategoricalDtype):\n        codes"
        ),
        killed_by=(f"{_CELLS}::test_frames",),
    ),
    Fault(
        name="a dtype without faithful texts is read all the same",
        file="src/marginweave/runs/frames.py",
        text="    if line is not None:\n",
        instead="    if line is not None and native is None:\n",
        killed_by=(
            f"{_CELLS}::test_a_time_of_day_in_one_row_renames_no_date",
            f"{_CELLS}::test_a_gap_in_one_row_renames_no_code",
            f"{_CELLS}::test_a_dtype_without_faithful_texts_is_refused_whatever_the_rows_are",
        ),
    ),
    Fault(
        name="ids and hidden values are read from floats, which round them",
        file="src/marginweave/sources/source.py",
        text="if pa.types.is_floating(kind):",
        instead="if pa.types.is_float16(kind):",
        killed_by=(f"{_CELLS}::test_floats_of_files_and_other_libraries_are_refused",),
    ),
    Fault(
        name="7 and 7.0 in an object column are two persons",
        file="src/marginweave/runs/frames.py",
        text="    refuse_spellings(data, spelled)\n",
        instead="",
        killed_by=(
            f"{_CELLS}::test_no_number_of_an_object_column_is_two_persons",
            f"{_CELLS}::test_categories_follow_the_same_rule_also_those_that_no_row_has",
        ),
    ),
    Fault(
        name="7 and 7.0 in a sheet are two persons",
        file="src/marginweave/sources/sheet.py",
        text="isinstance(cell, float | bool) and name in exact_text_columns",
        instead="isinstance(cell, bool) and name in exact_text_columns",
        killed_by=(f"{_CELLS}::test_no_number_of_a_sheet_is_two_persons",),
    ),
    Fault(
        name="the last row of a text is cut off with the lines below it",
        file="src/marginweave/sources/cut_lines.py",
        text="for _ in range(footer):",
        instead="for _ in range(footer + 1):",
        killed_by=(
            f"{_CELLS}::test_text_files",
            "tests/unit/sources/test_layout.py::test_lines_are_cut_by_their_numbers",
        ),
    ),
    Fault(
        name="the last row of a sheet is a total where its first cell says so",
        file="src/marginweave/sources/sheet.py",
        text="if any(cell is not None for cell in row):\n            held_back",
        instead='if any(cell is not None for cell in row) and row[0] != "1":\n            held_back',
        killed_by=(f"{_CELLS}::test_sheets",),
    ),
    Fault(
        name="a public domain is what occurs in the rows",
        file="src/marginweave/columns/category.py",
        text="    if column.private:\n        # An empty cell",
        instead="    if True:\n        # An empty cell",
        killed_by=(
            "tests/unit/prepare/test_clean.py::test_the_dictionary_is_the_public_domain_whatever_the_data",
        ),
    ),
    Fault(
        name="candidates of private bounds end at the largest value that occurs",
        file="src/marginweave/measurements/quantile_bounds.py",
        text="return np.bincount(index + 1, minlength=len(candidates) + 1).astype(np.int64)",
        instead="return np.bincount(index + 1, minlength=2).astype(np.int64)",
        killed_by=(
            "tests/unit/tasks/test_release_bounds.py::test_the_histogram_counts_values_at_or_below_each_candidate",
        ),
    ),
    Fault(
        name="a cell that is not as declared becomes a value where its record breaks a rule",
        file="src/marginweave/prepare/repair.py",
        text="is_undeclared[:, None], has_code[:, last], has_code[:, :last].any(axis=1)",
        instead="True, has_code[:, :last].any(axis=1), False",
        killed_by=(f"{_UNDECLARED}::{_STAYS}",),
    ),
    Fault(
        name="a value is made up for a cell that is missing where a rule wants one",
        file="src/marginweave/prepare/repair.py",
        text="np.where(self._may_become_undeclared(j, codes), size - 1, chosen)",
        instead="np.where(False, size - 1, chosen)",
        killed_by=(f"{_UNDECLARED}::test_no_value_is_made_up_where_a_rule_wants_one",),
    ),
    Fault(
        name="an empty cell is a value of a private domain",
        file="src/marginweave/columns/category.py",
        text="is_value = text and text not in RESERVED",
        instead="is_value = True",
        killed_by=(f"{_UNDECLARED}::test_what_can_be_missing_all_the_same_says_so",),
    ),
    Fault(
        name="the bounds of a difference are those that occur in the rows",
        file="src/marginweave/columns/computed.py",
        text="np.clip(difference, *column.clamp)",
        instead="np.clip(difference, np.nanmin(difference), column.clamp[1])",
        killed_by=(f"{_COMPUTED}::test_a_difference_is_computed_of_each_row_and_bounded",),
    ),
    Fault(
        name="a difference may be known where the date since which it counts is missing",
        file="src/marginweave/configuration/attributes.py",
        text="        boxes += rules.undated(difference.since, difference.column)\n",
        instead="        pass\n",
        killed_by=(
            f"{_COMPUTED}::test_nothing_has_passed_since_what_is_missing",
            f"{_COMPUTED}::test_differences_and_sums_hold_in_every_record",
        ),
    ),
    Fault(
        name="a negative number in brackets counts as a positive one",
        file="src/marginweave/configuration/number_texts.py",
        text='readings += [(pattern, r"-\\1") for pattern in bracketed]',
        instead='readings += [(pattern, r"\\1") for pattern in bracketed]',
        killed_by=(f"{_FORMS}::test_a_number_with_a_unit_or_in_brackets_is_the_number",),
    ),
    Fault(
        name="Rs.500 is half of a rupee",
        file="src/marginweave/configuration/number_texts.py",
        text='if unicodedata.category(self.unit[-1]) == "Sc" else digits_first',
        instead='if unicodedata.category(self.unit[-1]) != "Nd" else digits_first',
        killed_by=(f"{_FORMS}::test_a_unit_is_no_part_of_the_number",),
    ),
)
