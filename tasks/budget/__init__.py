"""The privacy budget: its price, its split, noise and thresholds, and the ledger that books every draw."""
