"""Synthetic records, as codes and as values."""
