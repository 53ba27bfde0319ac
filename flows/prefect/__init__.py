"""Modules that start Prefect, watch it, and call it."""
