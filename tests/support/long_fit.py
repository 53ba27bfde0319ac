"""A fit that takes long, for what stops it."""

from typing import Any

LONG_FIT: dict[str, Any] = {
    "aggregate": {"method": "marginals", "cliques": {"all": 2}},
    "synthesize": {"method": "mixture", "components": 1500, "fits": 40, "iterations": 6},
}
"""Some seven seconds and more on two cores, whatever the noise is: a line of progress comes after two."""
