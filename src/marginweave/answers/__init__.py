"""Least squares over all measurements, and the intervals of answers."""
