"""Faults of the order of things: charge, draw, commit; what a crash leaves; who may go on."""

from __future__ import annotations

from tests.mutations.fault import Fault

_CRASH = "tests/unit/checkpoint/test_run_draw.py::test_a_killed_run_leaves_one_draw_or_a_lost_charge"
_CHARGE = "ledger.begin_draw(release_id, name, lease, replaces=replaces)"

FAULTS = (
    Fault(
        name="the charge comes after the draw",
        file="tasks/checkpoint/draws.py",
        text=f"    {_CHARGE}\n    payload, tainted = make()\n",
        instead=f"    payload, tainted = make()\n    {_CHARGE}\n",
        killed_by=("tests/unit/checkpoint/test_run_draw.py::test_order_is_charge_draw_store_commit",),
    ),
    Fault(
        name="the ledger lets a draw that was begun be begun again",
        file="schemas/ledger.py",
        text="        (State.RESERVED, State.DRAWN),\n",
        instead="        (State.RESERVED, State.DRAWN),\n        (State.DRAWN, State.DRAWN),\n",
        killed_by=(
            "tests/unit/ledger/test_draw_states.py::test_every_move_from_every_state",
            "tests/unit/ledger/test_draw_states.py::test_one_of_many_begins_a_draw",
        ),
    ),
    Fault(
        name="what was drawn is given back to the account",
        file="schemas/ledger.py",
        text="        (State.RESERVED, State.RETURNED),\n",
        instead="        (State.RESERVED, State.RETURNED),\n        (State.DRAWN, State.RETURNED),\n",
        killed_by=("tests/unit/ledger/test_draw_states.py::test_every_move_from_every_state",),
    ),
    Fault(
        name="a draw that was lost in a crash costs nothing",
        file="schemas/ledger.py",
        text="return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())",
        instead=(
            "return sum((d.cost for d in self.draws if d.state in CHARGED and d.state != State.CHARGED_LOST), Cost())"
        ),
        killed_by=(_CRASH,),
    ),
    Fault(
        name="a lost draw is drawn again without a charge of its own",
        file="tasks/checkpoint/draws.py",
        text="draw, replaces = _spare_for(ledger, draw), name",
        instead="return make()[0]",
        killed_by=(_CRASH, "tests/unit/checkpoint/test_run_draw.py::test_failed_draws_are_lost_not_repeated"),
    ),
    Fault(
        name="a committed draw is read back without a look at its digest",
        file="tasks/checkpoint/draws.py",
        text="if opened is None or (digest is not None and not hmac.compare_digest(opened[1], digest)):",
        instead="if opened is None:",
        killed_by=("tests/unit/checkpoint/test_run_draw.py::test_committed_bytes_must_be_those_of_the_ledger",),
    ),
    Fault(
        name="a committed draw whose bytes are gone is drawn again",
        file="tasks/checkpoint/draws.py",
        text="        return _committed(store, draw)\n",
        instead="        return store.read(draw.release, draw.name, draw.lease or '', draw.digest) or make()[0]\n",
        killed_by=("tests/unit/checkpoint/test_run_draw.py::test_committed_draws_are_never_redrawn",),
    ),
    Fault(
        name="noise of a test's generator is kept",
        file="tasks/checkpoint/draws.py",
        text="    if tainted:\n",
        instead="    if tainted is None:\n",
        killed_by=("tests/unit/checkpoint/test_run_draw.py::test_tainted_draws_are_lost_and_not_stored",),
    ),
    Fault(
        name="an attempt that was taken over goes on",
        file="tasks/budget/ledger/moves.py",
        text="    if record.lease != lease:\n",
        instead="    if record.lease is None:\n",
        killed_by=(
            "tests/unit/checkpoint/test_leases_and_spares.py::test_a_zombie_leaves_neither_a_commit_nor_a_file",
            "tests/unit/checkpoint/test_leases_and_spares.py::test_a_stale_lease_is_noticed_before_the_file_has_its_name",
        ),
    ),
    Fault(
        name="Prefect tries a draw again",
        file="tasks/door.py",
        text="retries=len(BACK_OFF_SECONDS) if patient else 0,",
        instead="retries=len(BACK_OFF_SECONDS),",
        killed_by=("tests/unit/test_patience.py::test_stages_that_draw_or_charge_are_never_retried",),
    ),
)
