"""What the preparation of a table does to a release, in words."""

from __future__ import annotations

from marginweave.schemas.configuration.release import Configuration


def preparation_forecast(configuration: Configuration) -> list[str]:
    """What happens to the rows before they are counted, in words, where it bears on privacy."""
    lines = []
    resize, bought = configuration.resize, configuration.private_bounds
    if bought:
        names = ", ".join(map(repr, bought))
        lines.append(f"Bounds: bought for {names}, {100 * configuration.bounds_share:g} % of the budget together")
    if resize is not None:
        how = "charged as (epsilon, delta) to the account's allowance" if resize.amplify else "noised for it"
        lines.append(
            f"Resize: {resize.records} records from {resize.copies} cop{'y' if resize.copies == 1 else 'ies'} sampled at rate "
            f"{float(resize.rate):g}; one unit replaces at most "
            f"{resize.copies * configuration.privacy.stability.records} of them, {how}; no record count is drawn"
        )
    return lines
