"""Turns raw rows into clean records, and these into codes."""
