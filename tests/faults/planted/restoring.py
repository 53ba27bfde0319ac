"""Faults of a ledger that was restored, and of moves that are asked again."""

from __future__ import annotations

from tests.faults.fault import Fault

_RESTORED = "tests/unit/ledger/test_restored.py"
_CHECKPOINTS = "tests/unit/ledger/test_checkpoints.py"
_OLDER = "tests/unit/ledger/test_older_ledgers.py"

FAULTS = (
    Fault(
        name="what homes that are gone may have released is charged as Gaussian noise",
        file="src/marginweave/ledger/reconciliation.py",
        text="cost=Cost(plain=unaccounted)",
        instead="cost=Cost(mu2=unaccounted.epsilon**2, delta=unaccounted.delta)",
        killed_by=(
            "tests/unit/ledger/test_restored.py::test_what_is_unaccounted_counts_as_it_is_stated",
        ),
    ),
    Fault(
        name="what an older version made is read",
        file="src/marginweave/base/formats.py",
        text="    if isinstance(number, int) and number >= present:",
        instead="    if number is None or isinstance(number, int):",
        killed_by=(
            "tests/unit/base/test_formats.py::test_a_smaller_number_or_none_is_of_an_older_version",
            "tests/unit/flows/test_older_homes.py::test_a_home_of_an_older_version_is_refused",
        ),
    ),
    Fault(
        name="expiry does not ask whether the ledger is an old copy",
        file="flows/cli/console.py",
        text="Ledger.open(location_of(example, home), witness=Witness(home))\n",
        instead="Ledger.open(location_of(example, home))\n",
        killed_by=(f"{_RESTORED}::test_the_commands_refuse_an_old_copy",),
    ),
    Fault(
        name="a ledger is compared when it is opened, and never again",
        file="src/marginweave/ledger/session.py",
        text="                self.witness.check(journal",
        instead="                (lambda *_: None)(journal",
        killed_by=(f"{_RESTORED}::test_a_ledger_that_is_replaced_under_a_command_is_refused",),
    ),
    Fault(
        name="a home does not keep the row of a draw before its noise is made",
        file="src/marginweave/ledger/session.py",
        text="            self.witness.keep(journal.written_events)",
        instead="            pass",
        killed_by=(f"{_RESTORED}::test_the_row_of_a_draw_is_kept_before_its_noise_is_made",),
    ),
    Fault(
        name="a reconciliation gives back what is reserved in the old copy",
        file="src/marginweave/ledger/reconciliation.py",
        text="entry = self._event(EventKind.CHARGED_LOST,",
        instead="entry = self._event(EventKind.RETURNED,",
        killed_by=(f"{_RESTORED}::test_an_account_that_the_old_copy_does_not_have_is_named",),
    ),
    Fault(
        name="a row that a home shows is adopted without a look at its seal",
        file="src/marginweave/ledger/reconciliation.py",
        text="        check_row(row, key)\n",
        instead="",
        killed_by=(f"{_RESTORED}::test_a_forged_row_is_refused_by_name",),
    ),
    Fault(
        name="a run that has lost the rows it had seen is not compared",
        file="src/marginweave/ledger/witness.py",
        text="if _named(sighting) == ledger else RunFolder(path.parent).readable_manifest()",
        instead="",
        killed_by=(
            f"{_OLDER}::test_an_older_copy_is_refused_whatever_became_of_the_rows_that_were_seen",
        ),
    ),
    Fault(
        name="a home gives back what runs of other homes have reserved",
        file="src/marginweave/ledger/draws.py",
        text="if release is None and home is not None and not home.has(record.run):",
        instead="if release is None and False:",
        killed_by=(
            "tests/unit/ledger/test_restored.py::test_what_was_given_back_after_a_restore_is_charged_again",
        ),
    ),
    Fault(
        name="a draw that was begun is refused to the lease that begun it",
        file="src/marginweave/ledger/draws.py",
        text="    if newest == replace(entry, created=newest.created):\n",
        instead="    if newest is None:\n",
        killed_by=(
            "tests/unit/ledger/test_draw_states.py::test_a_move_asked_again_finds_its_own_row",
        ),
    ),
    Fault(
        name="sums from a checkpoint on forget what is reserved behind it",
        file="src/marginweave/ledger/sums.py",
        text="releases = releases_of(events, earlier)",
        instead="releases = dict(earlier)",
        killed_by=(
            f"{_CHECKPOINTS}::test_what_a_checkpoint_has_added_up_is_not_read_again[sqlite]",
        ),
    ),
    Fault(
        name="no checkpoint follows what is given back",
        file="src/marginweave/ledger/sums.py",
        text='row["kind"] == EventKind.RETURNED or ',
        instead="",
        killed_by=(f"{_CHECKPOINTS}::test_a_release_goes_on_with_all_of_its_rows_alone[sqlite]",),
    ),
    Fault(
        name="an auditor believes what a checkpoint says",
        file="src/marginweave/ledger/replay.py",
        text="totals_of(event.body) == self._totals()",
        instead="bool(totals_of(event.body))",
        killed_by=(f"{_CHECKPOINTS}::test_an_auditor_computes_every_checkpoint_again",),
    ),
    Fault(
        name="a row that was read before is not compared with what the ledger has now",
        file="src/marginweave/ledger/verified.py",
        text="        if list(rows[:checked]) != list(self.rows):",
        instead="        if len(rows) < checked:",
        killed_by=(
            "tests/unit/ledger/test_tampering.py::test_a_row_that_was_read_before_is_refused_once_it_is_changed[digest]",
        ),
    ),
    Fault(
        name="a draw that an older copy has given back may have been made",
        file="src/marginweave/ledger/invariants.py",
        text="_NOT_BEGUN = frozenset({State.RESERVED, State.RETURNED})",
        instead="_NOT_BEGUN = frozenset({State.RESERVED})",
        killed_by=(
            "tests/unit/ledger/test_invariants.py::test_what_does_not_fit_is_named[given back]",
        ),
    ),
)
