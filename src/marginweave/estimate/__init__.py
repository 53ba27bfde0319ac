"""Counts that agree with each other, and models that are fitted to them."""
