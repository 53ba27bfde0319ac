"""Faults of the order of things: charge, draw, commit; what a crash leaves; who may go on."""

from __future__ import annotations

from tests.faults.fault import Fault

_RUN = "tests/unit/draws/test_run_draw.py::"
_CRASH = f"{_RUN}test_a_killed_draw_is_made_again_byte_for_byte"
_SECRETS = "tests/unit/draws/test_secrets.py::"
_CHARGE = "        ledger.begin(attempt.release, draw.name, attempt.lease, facts)\n"
_MADE = "self.source.seed(name)"

FAULTS = (
    Fault(
        name="the charge comes after the draw",
        file="src/marginweave/draws/protocol.py",
        text=_CHARGE,
        instead=(
            "        make = prepared.make\n\n"
            "        def early(bits: DrawBits, noise: bytes) -> bytes:\n"
            "            payload = make(bits, noise)\n"
            "            ledger.begin(attempt.release, draw.name, attempt.lease, facts)\n"
            "            return payload\n\n"
            "        object.__setattr__(prepared, 'make', early)\n"
        ),
        killed_by=(f"{_RUN}test_order_is_secret_charge_draw_store_commit", _CRASH),
    ),
    Fault(
        name="all draws have one seed",
        file="src/marginweave/draws/files.py",
        text=_MADE,
        instead="hashlib.sha256(self.key).digest()",
        killed_by=(f"{_RUN}test_what_stands_in_the_ledger_says_nothing_of_the_inputs",),
    ),
    Fault(
        name="a seed follows from what everybody knows of its draw",
        file="src/marginweave/draws/files.py",
        text=_MADE,
        instead='hashlib.sha256(f"{release_id}/{name}".encode()).digest()',
        killed_by=(f"{_SECRETS}test_a_seed_follows_from_nothing",),
    ),
    Fault(
        name="a whole seed is written over by another attempt",
        file="src/marginweave/draws/files.py",
        text="if not write_once(place, sealed) and self._payload(place, release_id, name) is None:",
        instead="if not write_once(place, sealed):",
        killed_by=(f"{_SECRETS}test_of_two_attempts_at_once_the_first_makes_the_seed",),
    ),
    Fault(
        name="a seed outlives the commit of its draw",
        file="src/marginweave/draws/protocol.py",
        text="    secrets.destroy(name)\n    return payload, committed\n",
        instead="    return payload, committed\n",
        killed_by=(f"{_RUN}test_order_is_secret_charge_draw_store_commit",),
    ),
    Fault(
        name="a damaged copy of a seed is left as it is",
        file="src/marginweave/draws/files.py",
        text="        if first != copy:\n",
        instead="        if copy is None and not self._copies(name)[1].exists():\n",
        killed_by=(f"{_RUN}test_a_damaged_seed_is_mended_and_two_lose_the_draw",),
    ),
    Fault(
        name="a damaged copy of a draw is left as it is",
        file="src/marginweave/draws/protocol.py",
        text="    store.mend(payload, draw.release, draw.name, lease)\n",
        instead="",
        killed_by=(f"{_SECRETS}test_a_damaged_copy_of_a_draw_is_mended",),
    ),
    Fault(
        name="a draw that was begun is made again from other rows",
        file="src/marginweave/draws/protocol.py",
        text='        or not hmac.compare_digest(bound, draw.facts.get("inputs", ""))\n',
        instead="",
        killed_by=(f"{_RUN}test_other_inputs_are_refused_and_the_draw_is_lost",),
    ),
    Fault(
        name="a draw that was begun is made again by another program",
        file="src/marginweave/draws/protocol.py",
        text="    if begun_by != program:\n",
        instead="    if begun_by is None:\n",
        killed_by=(f"{_RUN}test_another_program_does_not_make_a_begun_draw_again",),
    ),
    Fault(
        name="noise of a library is drawn again where its draw was begun",
        file="src/marginweave/draws/protocol.py",
        text="    if draw.state == State.RESERVED:\n        if prepared.unkeyed is not None:\n",
        instead="    if draw.state in (State.RESERVED, State.DRAWN):\n        if prepared.unkeyed is not None:\n",
        killed_by=(f"{_RUN}test_noise_of_a_library_is_drawn_once",),
    ),
    Fault(
        name="what a draw is bound to leaves out the noise that was sealed",
        file="src/marginweave/draws/files.py",
        text='inputs.encode() + b"\\0" + self.noise',
        instead="inputs.encode()",
        killed_by=(f"{_RUN}test_other_noise_in_the_place_of_what_was_sealed_loses_the_draw",),
    ),
    Fault(
        name="a damaged block of a checkpoint stops every attempt",
        file="src/marginweave/runs/capabilities.py",
        text="        store.discard_damaged(stage, key, blocks=True)\n",
        instead="",
        killed_by=("tests/unit/draws/test_anew.py::test_a_damaged_checkpoint_is_computed_anew",),
    ),
    Fault(
        name="the ledger lets a draw that was begun be begun again",
        file="src/marginweave/accounting/records.py",
        text="        (State.RESERVED, State.DRAWN),\n",
        instead="        (State.RESERVED, State.DRAWN),\n        (State.DRAWN, State.DRAWN),\n",
        killed_by=(
            "tests/unit/ledger/test_draw_states.py::test_a_move_asked_again_finds_its_own_row",
        ),
    ),
    Fault(
        name="what was drawn is given back to the account",
        file="src/marginweave/accounting/records.py",
        text="        (State.RESERVED, State.RETURNED),\n",
        instead="        (State.RESERVED, State.RETURNED),\n        (State.DRAWN, State.RETURNED),\n",
        killed_by=("tests/unit/ledger/test_draw_states.py::test_every_move_from_every_state",),
    ),
    Fault(
        name="a draw that was lost in a crash costs nothing",
        file="src/marginweave/accounting/records.py",
        text="return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())",
        instead=(
            "return sum((d.cost for d in self.draws if d.state in CHARGED and d.state != State.CHARGED_LOST), Cost())"
        ),
        killed_by=(f"{_SECRETS}test_a_lost_draw_stays_charged",),
    ),
    Fault(
        name="a lost draw is drawn again without its own charge",
        file="src/marginweave/draws/protocol.py",
        text="        raise lost_error(draw)\n    if prepared is None:\n",
        instead=(
            "        from marginweave.mechanisms.randomness import DrawBits\n"
            "        return b'' if prepared is None else prepared.make(DrawBits(seed=bytes(32)), b'')\n"
            "    if prepared is None:\n"
        ),
        killed_by=(f"{_RUN}test_other_inputs_are_refused_and_the_draw_is_lost",),
    ),
    Fault(
        name="a committed draw is read back without a look at its digest",
        file="src/marginweave/draws/files.py",
        text="if opened is not None and (digest is None or hmac.compare_digest(opened[1], digest)):",
        instead="if opened is not None:",
        killed_by=(
            "tests/unit/draws/test_run_draw.py::test_committed_bytes_must_be_those_of_the_ledger",
        ),
    ),
    Fault(
        name="a committed draw whose bytes are gone is drawn again",
        file="src/marginweave/draws/protocol.py",
        text="        return _read_committed(store, draw), draw\n",
        instead=(
            "        found = store.read(draw.release, draw.name, draw.lease or '', draw.digest)\n"
            "        from marginweave.mechanisms.randomness import DrawBits\n"
            "        again = b'' if prepared is None else prepared.make(DrawBits(seed=bytes(32)), b'')\n"
            "        return found or again, draw\n"
        ),
        killed_by=("tests/unit/draws/test_run_draw.py::test_committed_draws_are_never_redrawn",),
    ),
    Fault(
        name="noise of a test's generator is kept",
        file="src/marginweave/draws/protocol.py",
        text="        if bits.tainted:\n",
        instead="        if bits.tainted is None:\n",
        killed_by=(
            "tests/unit/draws/test_run_draw.py::test_tainted_draws_are_lost_and_not_stored",
        ),
    ),
    Fault(
        name="an attempt that was taken over continues",
        file="src/marginweave/ledger/draws.py",
        text="    if record.lease != lease:\n",
        instead="    if record.lease is None:\n",
        killed_by=(
            "tests/unit/draws/test_leases.py::test_a_zombie_leaves_neither_a_commit_nor_a_file",
            "tests/unit/draws/test_leases.py::test_a_stale_lease_is_noticed_before_the_file_has_its_name",
        ),
    ),
    Fault(
        name="Prefect tries a draw again",
        file="flows/release.py",
        text="retries=len(BACK_OFF_SECONDS) if stage.patient else 0,",
        instead="retries=len(BACK_OFF_SECONDS),",
        killed_by=(
            "tests/unit/tasks/test_patience.py::test_stages_that_draw_or_charge_are_never_retried",
        ),
    ),
)
