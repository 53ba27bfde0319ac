"""Rules between the guarantee that is asked for and what is drawn for it."""

from __future__ import annotations

from marginweave.schemas.configuration.sections import Sections


def check_privacy(configuration: Sections) -> None:
    """Refuse an accountant, or a delta of 0, that the draws do not go together with; raises ValueError."""
    privacy, settings = configuration.privacy, configuration.marginals
    if privacy.accountant == "joint":
        if settings is None and configuration.tuples.fabrication == "none":
            raise ValueError("privacy.accountant (joint) must be gdp, zcdp or sds with aggregate.fabrication: none")
        if settings is not None and settings.noise == "laplace":
            raise ValueError("privacy.accountant (joint) must be gdp or zcdp with aggregate.noise: laplace")
    if not privacy.delta:
        needs = _needs_delta(configuration)
        if needs is not None:
            raise ValueError(
                f"privacy.delta (0) must be positive {needs}; 0 is for marginals with aggregate.noise: laplace (or auto), of "
                "public domains and bounds, all or a list of them"
            )


def _needs_delta(configuration: Sections) -> str | None:
    """What is drawn that has no pure epsilon, in words; None for nothing."""
    settings, resize = configuration.marginals, configuration.resize
    if settings is None:
        return "where k-tuples are counted, with Gaussian noise"
    if settings.noise == "gaussian":
        return "with aggregate.noise: gaussian"
    for needed, words in (
        (bool(configuration.private_columns), "with a private domain"),
        (bool(configuration.private_bounds), "with private bounds"),
        (settings.selects(len(configuration.attributes)), "where marginals are selected"),
        (configuration.evaluate.paid is not None, "with evaluate.paid"),
        (resize is not None and resize.amplify, "with resize.amplify"),
    ):
        if needed:
            return words
    return None
