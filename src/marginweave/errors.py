"""What marginweave raises: a message says what happened and what to do, and `hint` is what to do alone."""

from marginweave.schemas.errors import (
    AuditError,
    BudgetError,
    InputError,
    MachineError,
    MarginweaveError,
    NotFittedError,
    OperatorError,
    StageError,
    UnreachableLedger,
)

__all__ = [
    "AuditError",
    "BudgetError",
    "InputError",
    "MachineError",
    "MarginweaveError",
    "NotFittedError",
    "OperatorError",
    "StageError",
    "UnreachableLedger",
]
