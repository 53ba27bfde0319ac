"""Says what a private domain costs a drafted column, and leaves out columns that it would leave empty.

What it says goes into a draft, so it counts nothing of the data: only that values are many, and that most are rare. DP: none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from marginweave.accounting.accountants import budget_mu2
from marginweave.configuration.marginals import MarginalSettings
from marginweave.drafts.column_draft import MOST_VALUES, ColumnDraft
from marginweave.mechanisms.normal import ndtri

EPSILON = 1.0
"""Epsilon of a drafted release."""
LEAST_DELTA_EXPONENT = 6
"""Delta of a drafted release is 1e-6 for up to 7,000 rows; the exponent of ten, without its sign."""
_GROUP = "or group its values in the table, and draft again"
_LONGEST_PREFIX = 6
_FEWEST_GROUPS = 5
_MOST_ODD = 0.1
_CODE = re.compile(r"[A-Za-z]{0,3}[0-9][A-Za-z0-9.-]*")


def delta_exponent(about_rows: int) -> int:
    """Return x of the delta 10^-x of a draft: the largest power of ten at most n^-1.5 for all n that are rounded alike.

    At 1/n a release that shows one of n records meets the definition, and `plan` calls what is above n^-1.5 large. Of 1, 2, 5,
    10, … all n that round to one are below the next, 2.5 times as many at most. DP: none; it says of the table what its
    rounded number of rows says.

    Args:
        about_rows: The number of rows, rounded by `subjects.near_on_grid`.
    """
    leading = int(str(about_rows)[0])
    next_on_grid = about_rows // leading * {1: 2, 2: 5, 5: 10}[leading]
    return max(LEAST_DELTA_EXPONENT, math.ceil(1.5 * math.log10(next_on_grid)))


def with_costs(
    columns: Mapping[str, ColumnDraft], records: int, delta: float
) -> dict[str, ColumnDraft]:
    """Return the drafts, in which each private domain says what will be missing.

    A column of which most cells would be missing is left out, and says how it could be released. DP: none.

    Args:
        columns: The drafted columns, by name.
        records: The most rows of one person that count.
        delta: That of the drafted release.
    """
    drafts = dict(columns)
    while True:
        private = [name for name, draft in drafts.items() if draft.is_private and draft.value_cells]
        if not private:
            return drafts
        least = least_records(len(private), records, delta)
        lost = {name: _lost_share(drafts[name].value_cells, least) for name in private}
        worst = max(private, key=lambda name: lost[name])
        if lost[worst] <= 0.5:
            return drafts | {name: _with_cost(drafts[name], least) for name in private}
        drafts[worst] = _left_out(drafts[worst], least)


def least_records(columns: int, records: int, delta: float) -> int:
    """Return about how many records a value of a private domain needs to be released, by the budget of a draft.

    With D columns and at most theta rows a person the noise of a count has the standard deviation theta sqrt(D / (s mu^2)),
    s being the share of private values. A value that one person alone has is released with probability delta_t at most, so
    the threshold is theta + 1 and z standard deviations, z the normal quantile of delta_t / (theta D). DP: none.
    """
    settings = MarginalSettings()
    delta_threshold = settings.delta_threshold_share * delta
    mu2 = budget_mu2(EPSILON, delta - delta_threshold)
    sigma = records * math.sqrt(columns / (settings.values_share * mu2))
    quantile = -float(ndtri(delta_threshold / (records * columns)))
    least = 1 + records + quantile * sigma
    step = 10 ** max(0, math.floor(math.log10(least)) - 1)
    return math.ceil(least / step) * step


def prefix_group(texts: Sequence[str]) -> str:
    """Return in words how codes can be grouped by their first characters; nothing where they are no codes."""
    odd = sum(not _CODE.fullmatch(text) for text in texts)
    if odd > _MOST_ODD * len(texts):
        return ""
    for length in range(_LONGEST_PREFIX, 0, -1):
        groups = len({text[:length] for text in texts})
        if _FEWEST_GROUPS <= groups <= MOST_VALUES:
            first = "character" if length == 1 else f"{length} characters"
            return f"or group them by the first {first} in the table, and draft again"
    return ""


def _lost_share(value_cells: Sequence[int], least: int) -> float:
    """Return the share of the cells with a value of fewer records than are needed."""
    lost = sum(cells for cells in value_cells if cells < least)
    return lost / sum(value_cells)


def _with_cost(draft: ColumnDraft, least: int) -> ColumnDraft:
    remark = f"values with fewer than about {least} records will be missing"
    return replace(draft, remark=_joined(draft.remark, remark, draft.group))


def _left_out(draft: ColumnDraft, least: int) -> ColumnDraft:
    cost = (
        f"With {{type: category, domain: private}} those with fewer than about {least} records would be missing, "
        "most of the cells"
    )
    advice = _joined(cost, draft.group or _GROUP)
    dropped = f"more than {MOST_VALUES} values, too rare: it is dropped"
    remark = f"{draft.remark}; it is dropped" if draft.remark else f"{dropped}. {advice}"
    words = {key: text for key, text in draft.facts.items() if key in ("label", "description")}
    return ColumnDraft("identifier", words, remark)


def _joined(*remarks: str) -> str:
    return "; ".join(remark for remark in remarks if remark)
