"""The triggers that make both tables append-only: what the first migration writes, and the auditor compares with."""

from __future__ import annotations

from sqlalchemy import Connection

TABLES = ("accounts", "events")
# The insert triggers stop INSERT OR REPLACE, which deletes without firing a delete trigger.
_TAKEN = {
    "accounts": "EXISTS (SELECT 1 FROM accounts WHERE dataset = NEW.dataset)",
    "events": "NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events)",
}
_FUNCTION = "ledger_is_append_only"
_SOURCE = " BEGIN RAISE EXCEPTION 'the ledger is append-only'; END "
# Bits of pg_trigger.tgtype: BEFORE, DELETE, UPDATE and TRUNCATE, and not ROW.
_BEFORE_STATEMENT = 2 | 8 | 16 | 32
_ALWAYS = "A"

_IN_SQLITE = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
# Triggers that keep foreign keys are internal. A column list (tgattr) or a condition (tgqual) would leave changes out.
_IN_POSTGRESQL = """
SELECT t.tgname, c.relname, t.tgtype, t.tgenabled, t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0,
       p.proname, l.lanname, p.prosrc
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
     JOIN pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgrelid IN (to_regclass('accounts'), to_regclass('events'))
"""


def statements(dialect: str) -> tuple[str, ...]:
    """What makes the guards in a database of this dialect (`sqlite` or `postgresql`), in order."""
    if dialect == "sqlite":
        return tuple(sql for _, sql in _sqlite_triggers().values())
    made = [f"CREATE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $${_SOURCE}$$"]
    for table in TABLES:
        made.append(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_FUNCTION}()"
        )
        # A session that replays replication skips the triggers that are not ALWAYS.
        made.append(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")
    return tuple(made)


def guards_fault(connection: Connection) -> str | None:
    """What is wrong with the guards by what they do, not by their names alone; None for nothing."""
    expected: dict[str, tuple[object, ...]] = {}
    if connection.dialect.name == "sqlite":
        query = _IN_SQLITE
        expected.update(_sqlite_triggers())
    else:
        query, function = _IN_POSTGRESQL, (_FUNCTION, "plpgsql", _SOURCE)
        expected.update({f"{t}_append_only": (t, _BEFORE_STATEMENT, _ALWAYS, True, *function) for t in TABLES})
    found = {str(row[0]): tuple(row[1:]) for row in connection.exec_driver_sql(query)}
    lost = sorted(name for name, guard in expected.items() if found.get(name) != guard)
    if lost:
        return f"the ledger is not append-only any more: {', '.join(lost)} was taken away or changed"
    if len(found) > len(expected):
        return "the ledger's tables have a trigger that no version of the program writes"
    return None


def _sqlite_triggers() -> dict[str, tuple[str, str]]:
    """Table and text of every trigger, as sqlite_master has them."""
    triggers = {}
    for table in TABLES:
        for name, clause in (("update", "UPDATE"), ("delete", "DELETE"), ("replace", "INSERT")):
            when = f"WHEN {_TAKEN[table]} " if clause == "INSERT" else ""
            made = f"CREATE TRIGGER {table}_no_{name} BEFORE {clause} ON {table} {when}"
            made += "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            triggers[f"{table}_no_{name}"] = table, made
    return triggers
