"""A configuration of a release: everything in it is public knowledge, and its hash goes into the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import model_validator

from marginweave.configuration.checks import (
    check_evaluation,
    check_marginals,
    check_preparation,
    check_privacy,
    check_target,
)
from marginweave.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.configuration.earlier import KnownRelease, without_folders
from marginweave.configuration.execution import Execution
from marginweave.configuration.linked_checks import check_tables
from marginweave.configuration.rules.structure import check_structure
from marginweave.configuration.sections import Sections
from marginweave.configuration.totals import KnownTotals, check_earlier, check_known, known_totals
from marginweave.configuration.values import listed
from marginweave.configuration.yaml_source import canonical_written, digest_of


class Configuration(Sections):
    """A configuration of one release whose sections fit together, with `auto` resolved."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_missing()
        self._check_structure()
        self._check_bins()
        check_tables(self)
        check_preparation(self)
        check_target(self)
        check_marginals(self)
        check_privacy(self)
        check_evaluation(self)
        check_known(self, self.totals)
        check_earlier(self, self.earlier)
        if self.marginals is None:
            self.tuples.check_length(len(self.attributes))
        return self

    def _check_missing(self) -> None:
        """Refuse a value that would be read back as missing (ValueError)."""
        for name, column in self.columns.items():
            if not isinstance(column, MeasuredColumn):
                continue
            for text in column.also_missing(self.missing_texts(name)):
                raise ValueError(
                    f"columns.{name} declares {text!r} as a value and as missing; "
                    "to make it a value, give the column its own list, such as missing: []"
                )

    def _check_bins(self) -> None:
        """Refuse a bin in which every value is a missing code (ValueError)."""
        for name in self.names:
            column = self.columns[name]
            assert isinstance(column, MeasuredColumn)
            try:
                column.check_bins(self.missing_texts(name))
            except ValueError as error:
                raise ValueError(f"columns.{name} {error}") from None

    def _check_structure(self) -> None:
        """Refuse rules that do not fit the columns, and a table without a counted column (ValueError)."""
        if self.structure is not None:
            check_structure(self.structure, self.columns)
            _ = self.forbidden  # raises ValueError for a value that a column does not have
        if not self.attributes:
            raise ValueError("columns has no column that is counted")

    @cached_property
    def titled_names(self) -> dict[str, str]:
        """Names that pages use, by the name of each attribute: with the label of its column behind it, if it has one."""
        labels = {a.name: self.columns[a.column].label for a in self.attributes}
        return {name: f"{name} ({label})" if label else name for name, label in labels.items()}

    @cached_property
    def totals(self) -> tuple[KnownTotals, ...]:
        """Known tables over codes."""
        return known_totals(self)

    @property
    def earlier(self) -> tuple[KnownRelease, ...]:
        """Earlier releases of the same rows whose counts are used again."""
        return tuple(entry for entry in self.known or () if isinstance(entry, KnownRelease))

    @property
    def followed_tables(self) -> str:
        """Known tables in words: model, records and adjusted counts follow these, also where something else was counted."""
        return listed([totals.crossed_names for totals in self.totals])

    @property
    def tables_of_others(self) -> str:
        """Known tables of another source, in words: nothing measured tells how far they are from what was counted."""
        others = [totals for totals in self.totals if totals.table.origin == "other-source"]
        return listed([totals.crossed_names for totals in others])

    @property
    def earlier_runs(self) -> str:
        """Runs of the earlier releases whose counts are used again, in words; empty without any."""
        runs = [f"run {entry.release.run}" for entry in self.earlier]
        return listed(runs)

    def with_bounds(self, bounds: Mapping[str, tuple[float, float]]) -> Configuration:
        """Return the configuration with released bounds in the place of private ones.

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
        """Name of the run that this configuration belongs to, by the digest of what was written."""
        return f"{self.dataset}-{self.written_digest[:8]}"

    @cached_property
    def written(self) -> str:
        """Canonical JSON of the keys that the user wrote; of all keys, for a configuration that was made in Python."""
        return canonical_written(self.model_dump(mode="json", exclude_none=True))

    @cached_property
    def written_digest(self) -> str:
        """SHA-256 of `written`, hex: the ledger and the name of a run identify a configuration by it."""
        return digest_of(self.written)

    @classmethod
    def from_written(cls, resolved: Mapping[str, Any], raw: Mapping[str, Any]) -> Self:
        """Return the configuration of `resolved`, whose `written` is of `raw`; raises ValidationError."""
        configuration = cls.model_validate(resolved)
        # where a cached property is stored
        vars(configuration)["written"] = canonical_written(without_folders(raw))
        return configuration

    @property
    def execution(self) -> Execution:
        """Settings of the computation, on which the release does not depend."""
        return Execution(**{name: getattr(self, name) for name in Execution.model_fields})

    def canonical(self) -> str:
        """Return everything that the release depends on as canonical JSON: defaults filled in, keys sorted except columns."""
        dumped: dict[str, Any] = self.model_dump(
            mode="json", exclude_none=True, exclude=set(Execution.model_fields)
        )
        dumped["columns"] = [[name, column] for name, column in dumped["columns"].items()]
        return json.dumps(dumped, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_canonical(cls, text: str, execution: Execution | None = None) -> Configuration:
        """Return the configuration that `canonical` wrote, to be computed as `execution` says, or as by default."""
        dumped = json.loads(text)
        return cls.model_validate(
            {**dumped, **dict(execution or Execution()), "columns": dict(dumped["columns"])}
        )

    def as_resolved(self, canonical: str) -> Configuration:
        """Return this configuration as another version resolved it, where its `canonical` returned `canonical`."""
        configuration = Configuration.from_canonical(canonical, self.execution)
        vars(configuration)["written"] = self.written
        return configuration

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form of the resolved configuration, in hex."""
        return digest_of(self.canonical())
