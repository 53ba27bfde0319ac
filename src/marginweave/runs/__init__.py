"""A run from its request to the purge."""
