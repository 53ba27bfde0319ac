"""Marginweave: differentially private counts of attribute combinations, and synthetic records made from them."""


def __getattr__(name: str) -> str:
    """The version of the installed program, `__version__`."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("marginweave")
