"""What was done to the rows before they were counted, and what was bought, in plain words; from what is released alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.preparation import GaussianImputation, Imputation, WeightedImputation
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.evaluation import Evaluation

Bounds = Mapping[str, tuple[float, float]]


def unit_assumption(configuration: Configuration) -> str:
    """What has to be true for the guarantee to be about people."""
    subject = configuration.privacy.subject
    if subject is None:
        return "One row is one person, as `unit` says; a person with several rows is protected less."
    alone = "; a row without one is a person of its own" if subject.missing_subject == "own" else ""
    return (
        f"All rows of one person have one value of column {subject.column!r}{alone}; "
        "a person with several values is protected less."
    )


def paid_words(evaluation: Evaluation) -> list[str]:
    """What an evaluation.json says of the comparison that was bought; nothing where none was. DP: post-processing."""
    if "paid" not in evaluation.model_fields_set:
        return []
    paid = evaluation.paid
    if paid is None:
        return ["A comparison with the sensitive table was bought, but for records of another version of the program."]
    error, tvd = paid.count_error, paid.tvd
    relative = f", a total variation distance of {tvd.value:.3f} ({tvd.low:.3f} to {tvd.high:.3f})" if tvd else ""
    found = (
        f"Over the {paid.marginals} marginals of {paid.length} attribute(s), the synthetic counts and those of the rows "
        f"as prepared are {error.value:g} records apart on average (95 % interval {error.low:g} to {error.high:g}; "
        f"noise of standard deviation {paid.deviation:.1f}){relative}."
    )
    price = (
        f"Bought with {100 * paid.share:g} % of the budget, for these records alone; it chose nothing, and every further "
        "look at the data would be a charge."
    )
    return [found, price]


def preparation_words(configuration: Configuration, bounds: Bounds) -> list[str]:
    """Unit, imputation, private bounds and resize, a sentence each."""
    return [
        *_unit(configuration),
        *(_imputation(name, column.impute) for name, column in _imputed(configuration)),
        *(
            f"The bounds of column {name!r}, {low:g} and {high:g}, were bought under the budget: two quantiles among public "
            "candidates; values beyond them count as the nearest bound."
            for name, (low, high) in bounds.items()
        ),
        *_resize(configuration),
    ]


def _unit(configuration: Configuration) -> Iterator[str]:
    subject = configuration.privacy.subject
    if subject is None:
        yield "The unit of privacy is one row."
        return
    yield f"The unit of privacy is one subject: all rows with the same value of column {subject.column!r}."
    if subject.join:
        yield "All rows of a subject were joined into one record: sets united, a value missing where the rows disagree."
    else:
        yield f"At most {subject.max_records} row(s) of a subject were counted, uniformly chosen where there were more."
    if subject.missing_subject == "own":
        yield "A row without a subject counts as a subject of its own."
    else:
        yield "Rows without a subject were left out."


def _imputed(configuration: Configuration) -> Iterator[tuple[str, MeasuredColumn]]:
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            yield name, column


def _imputation(name: str, impute: Imputation | None) -> str:
    if isinstance(impute, GaussianImputation):
        source = (
            f"a normal distribution with mean {impute.mean:g} and deviation {impute.deviation:g}, clamped to the bounds"
        )
    elif isinstance(impute, WeightedImputation):
        source = "declared values with declared weights"
    else:
        source = "the uniform distribution"
    return f"Missing values of column {name!r} were replaced by draws of {source}."


def _resize(configuration: Configuration) -> Iterator[str]:
    resize = configuration.resize
    if resize is None:
        return
    copies = f"{resize.copies} copies of the table" if resize.copies > 1 else "the table"
    yield (
        f"The counted table has the public number of {resize.records} records: sampled from {copies} at rate "
        f"{float(resize.rate):g}, cut to that number or filled up with imputed records."
    )
    if resize.amplify:
        yield (
            "Noise was calibrated to the functional (epsilon, delta) of the sampled table "
            f"({resize.formula or 'tight'} formula); the release as a whole is charged as plain (epsilon, delta)."
        )
    else:
        replaced = resize.copies * configuration.privacy.stability.records
        yield f"Noise was calibrated for {replaced} replaced record(s) of that table, the most that one unit can cause."
