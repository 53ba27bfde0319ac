"""Exact counts of encoded rows, on this machine or on Dask. Private."""
