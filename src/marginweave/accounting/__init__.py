"""What draws cost together, and what the ledger knows of a draw."""
