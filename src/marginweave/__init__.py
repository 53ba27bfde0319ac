"""Marginweave: differentially private counts of attribute combinations, and synthetic records made from them."""

from importlib.metadata import version

__version__ = version("marginweave")
