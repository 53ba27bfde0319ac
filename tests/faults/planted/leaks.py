"""Faults by which something exact leaves: numbers, names, texts of errors, files."""

from __future__ import annotations

from tests.faults.fault import Fault

_PUBLIC = (
    "tests/system/test_stages_capabilities.py::test_nothing_private_is_opened_right_of_aggregate"
)

FAULTS = (
    Fault(
        name="a row that cannot be read is named in logs, and is no look",
        file="src/marginweave/runs/preparation.py",
        text="    raise OperatorError(reason)",
        instead="    raise InputError(reason)",
        killed_by=(
            "tests/system/test_check.py::test_rows_that_cannot_be_read_are_told_to_the_operator_alone",
        ),
    ),
    Fault(
        name="the number of records is released without noise",
        file="src/marginweave/measurements/record_count.py",
        text="pack_number(int(add_noise(records, sigma, bits)[0]))",
        instead="pack_number(int(records[0]))",
        killed_by=(
            "tests/system/test_stages_capabilities.py::test_the_number_of_records_is_told_with_its_noise",
        ),
    ),
    Fault(
        name="the names of all values of a private domain are released",
        file="src/marginweave/counts/released_rows.py",
        text="released[j] = tuple(sorted(names))",
        instead="released[j] = tuple(sorted(labels[j]))",
        killed_by=(
            "tests/laws/test_level_draw.py::test_private_labels_leave_only_if_they_survived",
        ),
    ),
    Fault(
        name="the text of an exception quotes what a library said",
        file="tasks/stage.py",
        text='kind(f"{name} failed: {type(error).__name__} at {place_of(error)}")',
        instead='kind(f"{name} failed: {error}")',
        killed_by=(
            "tests/unit/tasks/test_stage.py::test_a_fault_is_named_by_type_and_place_alone",
        ),
    ),
    Fault(
        name="metrics call an attempt by the text of the error that ended it",
        file="src/marginweave/runs/metrics.py",
        text="ending = Ending.of(error)",
        instead="ending = str(error)",
        killed_by=("tests/unit/runs/test_metrics.py::test_an_attempt_counts_by_its_end",),
    ),
    Fault(
        name="a refusal of noise quotes the largest count",
        file="src/marginweave/mechanisms/base.py",
        text='raise StageError("counts with noise must fit 64 bits")',
        instead='raise StageError(f"counts ({counts.max()}) with noise must fit 64 bits")',
        killed_by=(
            "tests/unit/mechanisms/test_gaussian.py::test_counts_that_could_overflow_or_are_no_int64_are_refused",
        ),
    ),
    Fault(
        name="what is for the operator's eyes is stored by Prefect as well",
        file="src/marginweave/base/errors.py",
        text="super().__init__(_FOR_OPERATOR)",
        instead="super().__init__(detail)",
        killed_by=(
            "tests/unit/tasks/test_stage.py::test_a_broken_rule_of_the_input_is_for_the_operator_only",
        ),
    ),
    Fault(
        name="Prefect keeps what a stage returns",
        file="flows/release.py",
        text="cache_policy=NO_CACHE,\n        persist_result=False,\n",
        instead="cache_policy=NO_CACHE,\n        persist_result=True,\n",
        killed_by=("tests/unit/tasks/test_stage.py::test_a_stage_neither_retries_nor_caches",),
    ),
    Fault(
        name="a run that nobody watches stops where a column is lost",
        file="src/marginweave/runs/preparation.py",
        text='stops=_ATTENDED.get() or request.configuration.check == "stop",',
        instead="stops=True,",
        killed_by=(
            "tests/unit/runs/test_preparation.py::test_a_table_stops_a_run_that_a_person_has_started",
        ),
    ),
    Fault(
        name="a configuration that was changed after a look is not marked",
        file="src/marginweave/runs/looks.py",
        text="return any(look.declared != declared for look in looks)",
        instead="return all(look.declared != declared for look in looks)",
        killed_by=(
            "tests/unit/runs/test_looks.py::test_a_change_is_marked_from_the_first_look_on",
        ),
    ),
    Fault(
        name="a run over another table is skipped",
        file="src/marginweave/runs/unchanged.py",
        text="return record.run if digest.matches(record.release, record.source_digest) else None",
        instead="return record.run",
        killed_by=("tests/unit/runs/test_unchanged.py::test_a_table_is_unchanged_byte_for_byte",),
    ),
    Fault(
        name="the statement does not list skipped runs",
        file="src/marginweave/publish/statement.py",
        text='if configuration.unchanged == "skip":',
        instead="if configuration.unchanged is False:",
        killed_by=(
            "tests/unit/runs/test_unchanged.py::test_the_statement_lists_skips_as_not_covered",
        ),
    ),
    Fault(
        name="Prefect gets the reason of a skipped run",
        file="flows/release.py",
        text="return prefect_records.skipped(shown_name, reason)",
        instead="return prefect_records.skipped(shown_name, reason.with_name(earlier))",
        killed_by=(
            "tests/unit/flows/test_release.py::test_a_scheduled_run_over_the_same_table_ends_as_skipped",
        ),
    ),
    Fault(
        name="the number of rows may follow what was seen of the table",
        file="src/marginweave/runs/looks.py",
        text='    "dataset",\n    "label",',
        instead='    "rows",\n    "dataset",\n    "label",',
        killed_by=(
            "tests/unit/runs/test_looks.py::test_a_change_is_marked_from_the_first_look_on",
        ),
    ),
    Fault(
        name="the warning of ids reads the table and is no look",
        file="flows/check/table.py",
        text=(
            "    record_look(\n"
            '        request.folder.home, "run", configuration.dataset, request.source, '
            "configuration.written\n    )\n"
        ),
        instead="",
        killed_by=("tests/unit/runs/test_looks.py::test_the_warning_of_ids_is_a_look",),
    ),
    Fault(
        name="a run that stopped for its rows is no look at them",
        file="src/marginweave/runs/looks.py",
        text="    except OperatorError:\n",
        instead="    except KeyError:\n",
        killed_by=(
            "tests/unit/runs/test_looks.py::test_a_run_that_stopped_for_its_rows_is_a_look",
        ),
    ),
    Fault(
        name="post-processing reads a private file",
        file="tasks/normalize.py",
        text="        normalized = normalize(counts)\n",
        instead=(
            "        seen = sum(len(f.read_bytes()) for f in (reference.place.parent / 'private').glob('encode*'))\n"
            "        normalized = normalize(counts) if seen + 1 else None\n"
        ),
        killed_by=(_PUBLIC,),
    ),
    Fault(
        name="post-processing is given the folder of private checkpoints",
        file="src/marginweave/runs/capabilities.py",
        text="place=self.folder.derived, canonical",
        instead="place=self.folder.private, canonical",
        killed_by=(_PUBLIC,),
    ),
    Fault(
        name="digests of private checkpoints are made with a key that everybody has",
        file="src/marginweave/runs/capabilities.py",
        text="return Store(self.folder.private, self.ledger.keys.checkpoint_key)",
        instead="return Store(self.folder.private, bytes(32))",
        killed_by=(
            "tests/system/test_stages_capabilities.py::test_private_checkpoints_hang_on_the_key_of_the_ledger",
        ),
    ),
    Fault(
        name="the digest of the source is unkeyed",
        file="src/marginweave/ledger/keys.py",
        text='empty = hmac.new(subkey(root, "source"), digestmod=hashlib.sha256)',
        instead="empty = hashlib.sha256()",
        killed_by=(
            "tests/unit/ledger/test_places_and_keys.py::test_source_digest_is_keyed_and_ignores_chunks",
        ),
    ),
    Fault(
        name="two releases of one source are marked alike",
        file="src/marginweave/ledger/keys.py",
        text="return hmac.digest(self.key, name.encode() + digest, hashlib.sha256).hex()",
        instead="return hmac.digest(self.key, digest, hashlib.sha256).hex()",
        killed_by=(
            "tests/unit/ledger/test_places_and_keys.py::test_marks_of_one_source_tell_nothing_without_the_key",
        ),
    ),
    Fault(
        name="ids of subjects are digested without the key",
        file="src/marginweave/prepare/rows.py",
        text='hashlib.blake2b(digest_size=_WIDTH, key=key, person=b"subject")',
        instead='hashlib.blake2b(digest_size=_WIDTH, person=b"subject")',
        killed_by=("tests/unit/prepare/test_subjects.py::test_a_digest_needs_the_key",),
    ),
    Fault(
        name="a private line keeps the special codes that its draft read from the data",
        file="src/marginweave/configuration/columns/base.py",
        text='"format", "codes", "text")',
        instead='"format", "text")',
        killed_by=(
            "tests/unit/configuration/test_confirmation.py::test_a_private_line_that_waits_holds_no_fact",
        ),
    ),
    Fault(
        name="account.json says what unpublished releases gave back",
        file="src/marginweave/ledger/published_account.py",
        text="    if record.outputs or all(",
        instead="    if True or all(",
        killed_by=(
            "tests/unit/ledger/test_published_account.py::test_what_a_rejected_release_gave_back_is_not_told",
            "tests/unit/ledger/test_published_account.py::test_no_history_of_unpublished_releases_is_told",
        ),
    ),
    Fault(
        name="account.json is of the day of submission",
        file="src/marginweave/ledger/published_account.py",
        text="            if event.kind == EventKind.PUBLISHED:\n                account =",
        instead="            if event.kind in {EventKind.SUBMITTED, EventKind.LEASED}:\n                account =",
        killed_by=(
            "tests/unit/ledger/test_published_account.py::test_a_release_that_waited_is_dated_and_counted_on_the_day_of_its_publication",
        ),
    ),
)
