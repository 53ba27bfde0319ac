"""Which marginals of an earlier release of the same rows a new release can use: those whose attributes are the same in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.released.statement import MarginalStatement, PrivacyStatement

_WORDS = {"confirm", "public", "label", "description", "titles"}  # of a column, which change no code


def usable_marginals(configuration: Configuration, statement: PrivacyStatement) -> tuple[MarginalStatement, ...]:
    """The marginals of the release that `statement` is of, whose counts tell of the attributes of `configuration`, as declared.

    Attributes of private domains, bounds or bins are left out: what was bought differs between releases, and so are marginals
    in coarser bins, which tell of no cell here. So are attributes whose cells each release draws again (`drawn_again`). All
    others count rows as they are, prepared by the same public rules.

    Raises:
        InputError: another account or unit, records that differ, a shared attribute that is declared differently, or nothing
            that can be used.
    """
    earlier = Configuration.from_canonical(statement.configuration)
    named = f"known.release: run {statement.run}"
    if statement.dataset != configuration.dataset:
        raise InputError(
            f"{named} is charged to account {statement.dataset!r} and this release to {configuration.dataset!r}; releases of "
            "the same rows have one account: correct dataset, or leave the earlier release out"
        )
    for what in ("unit_key", "neighbors"):
        of_theirs, own = getattr(earlier.privacy, what), getattr(configuration.privacy, what)
        if of_theirs != own:
            raise InputError(
                f"{named} has privacy.{what.removesuffix('_key')} {of_theirs!r}, and this configuration {own!r}, which must be "
                "the same; leave the earlier release out"
            )
    if earlier.resize is not None or earlier.privacy.subject is not None:
        raise InputError(
            f"{named} counted records that were chosen by chance (subjects, or resize): its rows are others"
        )
    theirs, ours = _declarations(earlier), _declarations(configuration)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] != theirs[name]:
            differing = ", ".join(key for key, value in ours[name].items() if theirs[name][key] != value)
            raise InputError(
                f"{named} declares {name!r} differently ({differing}); declare it as that release did, or leave the release out"
            )
    bought = {*configuration.private_bounds, *configuration.private_columns}
    same = (ours.keys() & theirs.keys()) - bought - drawn_again(configuration) - drawn_again(earlier)
    found = tuple(m for m in statement.marginals or () if same.issuperset(m.attributes) and not m.joined)
    if not found:
        raise InputError(
            f"{named} has no marginal whose columns are all declared here, with public values, and with cells that chance does "
            "not decide in each release (impute, or sets with more values than are counted); leave it out"
        )
    return found


def drawn_again(configuration: Configuration) -> frozenset[str]:
    """The attributes that hold what chance puts in a cell, or leaves there, and those that rules tie to them.

    Two releases of the same rows count other cells of these, so that counts of both are not of one table.
    """
    attributes = configuration.attributes
    drawn = {j for j, a in enumerate(attributes) if a.imputed or a.column in configuration.cut_sets}
    for part in tied_parts([a for a, _ in box] for box in configuration.forbidden):
        drawn |= part if not drawn.isdisjoint(part) else set()
    return frozenset(attributes[j].name for j in drawn)


def _declarations(configuration: Configuration) -> dict[str, Mapping[str, Any]]:
    """By attribute, what decides which code a row has: its columns, its values, and the rules that name it.

    A repair goes through the columns in their order.
    """
    names, structure = [attribute.name for attribute in configuration.attributes], configuration.structure
    rules = [frozenset((names[j], labels) for j, labels in box) for box in configuration.forbidden]
    found: dict[str, Mapping[str, Any]] = {}
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.column].model_dump(mode="json")
        mine = {rule for rule in rules if any(name == attribute.name for name, _ in rule)}
        found[attribute.name] = {
            "column": {key: value for key, value in column.items() if key not in _WORDS},
            "missing": configuration.missing_texts(attribute.column),
            "values": replace(attribute, bins=0),  # which say only what larger marginals may join
            "structure": mine,
            "repair": names if mine else None,
            "difference": structure.difference_of(attribute.column) if structure else None,
        }
    return found
