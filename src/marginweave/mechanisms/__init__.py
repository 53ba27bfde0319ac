"""Noise and choices, in integers, from keyed bits."""
