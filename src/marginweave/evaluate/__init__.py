"""Evaluation of synthetic records: their distance from the counts, and the verdict on a release."""
