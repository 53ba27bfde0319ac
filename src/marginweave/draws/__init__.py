"""Charges, draws and commits noise; keeps its bytes and its secrets."""
