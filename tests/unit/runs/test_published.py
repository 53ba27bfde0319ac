"""What a run says at its end is what `publish` does."""

from __future__ import annotations

import pytest

from marginweave.released.verdict import Publication, VerdictSummary
from marginweave.runs.published import next_words


@pytest.mark.parametrize("publication", ["good", "with care", "not for publication"])
def test_publish_comes_next_where_it_would_not_refuse(publication: Publication) -> None:
    judged = VerdictSummary(publication=publication, says=(), advice=())
    said = next_words("r", "report.html", judged)
    assert ("marginweave publish r --to FOLDER" in said) == (publication != "not for publication")
    assert ("publish would refuse this release" in said) == (publication == "not for publication")
    assert "marginweave publish" in next_words("r", "report.html", None)  # evaluation.json is gone
