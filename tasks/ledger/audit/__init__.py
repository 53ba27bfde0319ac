"""What an auditor does with a ledger: read all of it, apply its rules to every row once more, and hand it on."""

from marginweave.tasks.ledger.audit.ledger import Anchor, AuditedLedger, audit_ledger

__all__ = ["Anchor", "AuditedLedger", "audit_ledger"]
