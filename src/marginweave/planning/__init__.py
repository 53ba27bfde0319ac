"""Splits the budget of a release among its draws."""
