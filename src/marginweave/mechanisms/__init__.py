"""Mechanisms: noise from keyed bits, in integers, and the choices of an exponential mechanism."""
