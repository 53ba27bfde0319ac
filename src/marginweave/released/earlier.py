"""Selects the marginals of an earlier release of the same rows that a new release can use: those of the same attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Forbidden
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.released.statement import MarginalStatement, PrivacyStatement

# keys of a column that change no code
_WORDS = {"confirm", "public", "label", "description", "titles"}


def usable_marginals(
    configuration: Configuration, statement: PrivacyStatement
) -> tuple[MarginalStatement, ...]:
    """Return the marginals of an earlier release whose counts are of attributes of `configuration`, as declared.

    `statement` is the privacy statement of that release. Left out are attributes of private domains, bounds or bins, as each
    release buys its own; marginals in coarser bins, which have other cells; and attributes whose cells each release draws
    again (`drawn_again`). All other marginals count rows as they are, prepared by the same public rules.

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
    for key in ("unit_key", "neighbors"):
        theirs = getattr(earlier.privacy, key)
        ours = getattr(configuration.privacy, key)
        if theirs != ours:
            raise InputError(
                f"{named} has privacy.{key.removesuffix('_key')} {theirs!r}, and this configuration {ours!r}, which must be "
                "the same; leave the earlier release out"
            )
    if earlier.resize is not None or earlier.privacy.subject is not None:
        raise InputError(
            f"{named} counted records that were chosen by chance (subjects, or resize): its rows are others"
        )
    shared = _shared_attributes(configuration, earlier, named)
    bought = {*configuration.private_bounds, *configuration.private_columns}
    usable = shared - bought - drawn_again(configuration) - drawn_again(earlier)
    separate = [marginal for marginal in statement.marginals or () if not marginal.joined]
    marginals = tuple(marginal for marginal in separate if usable.issuperset(marginal.attributes))
    if not marginals:
        raise InputError(
            f"{named} has no marginal whose columns are all declared here, with public values, and with cells that chance does "
            "not decide in each release (impute, or sets with more values than are counted); leave it out"
        )
    return marginals


def _shared_attributes(
    configuration: Configuration, earlier: Configuration, named: str
) -> set[str]:
    """Return the attributes of both configurations; raises InputError where one is declared differently."""
    ours = _declarations(configuration)
    theirs = _declarations(earlier)
    shared = ours.keys() & theirs.keys()
    for name in sorted(shared):
        if ours[name] != theirs[name]:
            differing = ", ".join(
                key for key, value in ours[name].items() if theirs[name][key] != value
            )
            raise InputError(
                f"{named} declares {name!r} differently ({differing}); declare it as that release did, or leave the release out"
            )
    return shared


def drawn_again(configuration: Configuration) -> frozenset[str]:
    """Return the attributes with cells that chance fills or cuts, and those that rules tie to them.

    Two releases of the same rows count other cells of these, so that counts of both are not of one table.
    """
    attributes = configuration.attributes
    drawn: set[int] = set()
    for place, attribute in enumerate(attributes):
        if attribute.imputed or attribute.column in configuration.cut_sets:
            drawn.add(place)
    for tied in tied_parts(map(_attributes_of, configuration.forbidden)):
        if not drawn.isdisjoint(tied):
            drawn |= tied
    return frozenset(attributes[j].name for j in drawn)


def _attributes_of(rule: Forbidden) -> list[int]:
    """Return the places of the attributes of a forbidden combination."""
    return [place for place, _ in rule]


def _named_rule(rule: Forbidden, names: Sequence[str]) -> frozenset[tuple[str, Any]]:
    """Return a forbidden combination as names of attributes and the labels of each."""
    return frozenset((names[place], labels) for place, labels in rule)


def _declarations(configuration: Configuration) -> dict[str, Mapping[str, Any]]:
    """Return for each attribute the declarations that decide which code a row has: column, values, and rules that name it.

    A repair goes through the columns in their order: their names are a part of the declaration where a rule names one.
    """
    names = [attribute.name for attribute in configuration.attributes]
    structure = configuration.structure
    rules = [_named_rule(rule, names) for rule in configuration.forbidden]
    declarations: dict[str, Mapping[str, Any]] = {}
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.column].model_dump(mode="json")
        rules_of_attribute = {rule for rule in rules if attribute.name in dict(rule)}
        declarations[attribute.name] = {
            "column": {key: value for key, value in column.items() if key not in _WORDS},
            "missing": configuration.missing_texts(attribute.column),
            # bins matter only for the marginals that may be joined
            "values": replace(attribute, bins=0),
            "structure": rules_of_attribute,
            "repair": names if rules_of_attribute else None,
            "difference": structure.difference_of(attribute.column) if structure else None,
        }
    return declarations
