"""The page of an audit: claims beside what was measured, of made-up data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from marginweave.tasks.empirical.findings import Finding, Verdict
from marginweave.tasks.publish.figures import BLUE, ORANGE, drawing, inline_svg, new_axes, rows_from_the_top
from marginweave.tasks.publish.templates import render

VERDICTS: dict[Verdict, str] = {
    "holds": "holds",
    "exceeded": "ABOVE ITS CLAIM",
    "over-noised": "more noise than is charged",
}
ABOUT = (
    "Measured on made-up tables with the functions that a release calls: no data of yours was read, nothing was charged to a "
    "ledger, and nothing here is about anybody."
)
_LINE = 0.3


def render_audit(findings: Mapping[str, Sequence[Finding]]) -> bytes:
    """The page, with a figure for each of the audited configurations. DP: about made-up data."""
    parts = [
        (name, Markup(audit_figure(found, f"audit-{number}")), found)  # noqa: S704 - an SVG element of our own
        for number, (name, found) in enumerate(findings.items())
    ]
    return render("audit.html.j2", parts=parts, about=ABOUT, verdicts=VERDICTS).encode()


def audit_figure(findings: Sequence[Finding], name: str) -> str:
    """Measured intervals as shares of their claims, line by line from the top; the claim is at 1."""
    with drawing(name):
        figure, axes = new_axes(0.9 + _LINE * len(findings))
        for row, finding in enumerate(findings):
            ends = np.clip(np.array([finding.measured.low, finding.measured.high]) / finding.claim, 0, 2)
            colour = BLUE if finding.verdict == "holds" else ORANGE
            axes.plot(ends, [row, row], "|-", color=colour, markersize=8, linewidth=2)
        axes.axvline(1, color="#1b1b1b", linewidth=0.9)
        axes.set_yticks(range(len(findings)), [f"{finding.name} ({finding.quantity})" for finding in findings])
        rows_from_the_top(axes, len(findings))
        axes.set_xlim(0, 2.05)
        axes.set_xlabel("measured, as a share of the claim")
        said = "; ".join(
            f"{f.name}: {f.quantity} {f.measured.low:.3g} to {f.measured.high:.3g} of {f.claim:.3g}" for f in findings
        )
        return inline_svg(figure, name, "Measured privacy loss beside what is claimed", said)
