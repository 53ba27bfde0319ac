"""Preparation: raw rows become clean records, and these become codes."""
