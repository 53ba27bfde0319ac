"""Records of the budget ledger: states of a draw, events, accounts, releases, policies."""
