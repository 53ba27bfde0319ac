"""The parameters of the flow, typed for the form of Prefect's pages; their descriptions there are those of its docstring."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

FLOW = "marginweave release"  # the name of the flow: automations match it

ConfigurationPath = Annotated[str, Field(min_length=1, examples=["configurations/visits.yaml"])]
RunName = Annotated[str | None, Field(examples=["visits-2026-11-20"])]
SourcePath = Annotated[str | None, Field(examples=["extracts/visits.parquet"])]
HomeFolder = Annotated[str | None, Field(examples=["/srv/marginweave"])]
Supersedes = Annotated[str | None, Field(examples=["visits-2026-08-20"])]
WarnAt = Annotated[float, Field(gt=0, le=1, examples=[0.8])]
