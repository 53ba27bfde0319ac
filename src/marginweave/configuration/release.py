"""The configuration of a release: everything in it is public knowledge, and its hash goes into the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import model_validator

from marginweave.configuration.checks import check_evaluation, check_marginals, check_preparation, check_privacy
from marginweave.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.configuration.earlier import KnownRelease, without_folders
from marginweave.configuration.execution import Execution
from marginweave.configuration.rules.structure import check_structure
from marginweave.configuration.sections import Sections
from marginweave.configuration.totals import KnownTotals, check_earlier, check_known, known_totals
from marginweave.configuration.yaml_source import canonical_written, digest_of


class Configuration(Sections):
    """One release, whose sections go together; `auto` is resolved."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_missing()
        self._check_structure()
        self._check_bins()
        check_preparation(self)
        check_marginals(self)
        check_privacy(self)
        check_evaluation(self)
        check_known(self, self.totals)
        check_earlier(self, self.earlier)
        if self.marginals is None:
            self.tuples.check_length(len(self.attributes))
        return self

    def _check_missing(self) -> None:
        """Refuse a value that would be read back as missing."""
        for name, column in self.columns.items():
            if not isinstance(column, MeasuredColumn):
                continue
            for text in column.also_missing(self.missing_texts(name)):
                raise ValueError(
                    f"columns.{name} declares {text!r} as a value and as missing; "
                    "to make it a value, give the column its own list, such as missing: []"
                )

    def _check_bins(self) -> None:
        for name in self.names:
            column = self.columns[name]
            assert isinstance(column, MeasuredColumn)
            try:
                column.check_bins(self.missing_texts(name))
            except ValueError as error:
                raise ValueError(f"columns.{name} {error}") from None

    def _check_structure(self) -> None:
        if self.structure is not None:
            check_structure(self.structure, self.columns)
            _ = self.forbidden
        if not self.attributes:
            raise ValueError("columns has no column that is counted")

    @cached_property
    def titled_names(self) -> dict[str, str]:
        """For the name of each attribute what pages call it: with the label of its column behind it, where it has one."""
        labels = {a.name: self.columns[a.column].label for a in self.attributes}
        return {name: f"{name} ({label})" if label else name for name, label in labels.items()}

    @cached_property
    def totals(self) -> tuple[KnownTotals, ...]:
        """The known tables over codes."""
        return known_totals(self)

    @property
    def earlier(self) -> tuple[KnownRelease, ...]:
        """The earlier releases of the same rows whose counts are used again."""
        return tuple(known for known in self.known or () if isinstance(known, KnownRelease))

    def with_bounds(self, bounds: Mapping[str, tuple[float, float]]) -> Configuration:
        """The configuration with released bounds in the place of private ones.

        DP: post-processing of what was released.
        """
        if not bounds:
            return self
        columns = dict(self.columns)
        for name, (low, high) in bounds.items():
            column = columns[name]
            assert isinstance(column, NumberColumn)
            columns[name] = column.with_bounds(low, high, self.missing_texts(name))
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Configuration.model_validate({**fields, "columns": columns})

    @property
    def default_run(self) -> str:
        """Name of the run that this configuration stands for, by the digest of what was written."""
        return f"{self.dataset}-{self.written_digest[:8]}"

    @cached_property
    def written(self) -> str:
        """What the user wrote, as canonical JSON; all that there is, where the configuration was made in Python."""
        return canonical_written(self.model_dump(mode="json", exclude_none=True))

    @cached_property
    def written_digest(self) -> str:
        """SHA-256 of `written`, hex: what the ledger and the name of a run know a configuration by."""
        return digest_of(self.written)

    @classmethod
    def from_written(cls, resolved: Mapping[str, Any], raw: Mapping[str, Any]) -> Self:
        """The configuration of `resolved`, which remembers what was written, `raw`; raises ValidationError."""
        found = cls.model_validate(resolved)
        vars(found)["written"] = canonical_written(without_folders(raw))  # where a cached property is kept
        return found

    @property
    def execution(self) -> Execution:
        """How the release is computed, and nothing that it depends on."""
        return Execution(**{name: getattr(self, name) for name in Execution.model_fields})

    def canonical(self) -> str:
        """All that the release depends on as canonical JSON, defaults filled in: keys sorted, but for the order of columns."""
        dumped: dict[str, Any] = self.model_dump(mode="json", exclude_none=True, exclude=set(Execution.model_fields))
        dumped["columns"] = [[name, column] for name, column in dumped["columns"].items()]
        return json.dumps(dumped, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_canonical(cls, text: str, execution: Execution | None = None) -> Configuration:
        """The configuration that `canonical` wrote, to be computed as `execution` says, or as by default."""
        dumped = json.loads(text)
        return cls.model_validate({**dumped, **dict(execution or Execution()), "columns": dict(dumped["columns"])})

    def as_resolved(self, canonical: str) -> Configuration:
        """What was written here, as another version has resolved it: `canonical` is of that one."""
        found = Configuration.from_canonical(canonical, self.execution)
        vars(found)["written"] = self.written
        return found

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form of the resolved configuration, in hex."""
        return digest_of(self.canonical())
