"""What an audit computes: exact bounds of what was counted in trials, and the verdict on a claim. Made-up data only."""
