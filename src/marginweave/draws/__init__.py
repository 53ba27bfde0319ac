"""Charge, draw, commit; and what a stage may open."""
