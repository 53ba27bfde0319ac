"""Forecast what a release will be like, before any row is read."""
