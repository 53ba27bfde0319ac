"""A fit that takes long, for what stops it."""

from typing import Any

LONG_FIT: dict[str, Any] = {
    "aggregate": {"method": "marginals", "cliques": {"all": 2}},
    "synthesize": {"method": "mixture", "components": 1500, "fits": 160, "iterations": 6},
}
"""Five seconds on the fastest machine so far, more on others, whatever the noise is: a line of progress comes after two."""
