"""Measures the privacy loss of every mechanism."""
