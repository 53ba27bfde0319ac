"""From raw rows to clean records, none of which is anybody's one too many."""

from __future__ import annotations

import pyarrow as pa

from marginweave.schemas.configuration import Configuration
from marginweave.tasks.budget.randomness import UniformWords
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.preprocess.join import join_subjects
from marginweave.tasks.preprocess.subjects import DROPPED, kept_rows, subjects_of


def prepare_rows(raw: pa.Table, configuration: Configuration, words: UniformWords) -> pa.Table:
    """Clean rows of a raw table with the columns `source_names`: theta rows of a subject, or one record that joins them.

    DP: stable as `configuration.privacy.stability` says.
    """
    subject = configuration.privacy.subject
    if subject is None:
        return clean_table(raw, configuration)
    column = subject.column
    missing = configuration.missing_texts(column) if column in configuration.columns else configuration.missing
    subjects = subjects_of(raw.column(column).combine_chunks(), subject, missing)
    if subject.join:
        known = subjects != DROPPED
        return join_subjects(clean_table(raw.filter(pa.array(known)), configuration), subjects[known])
    kept = kept_rows(subjects, configuration.privacy.stability.records, words)
    return clean_table(raw.filter(pa.array(kept)), configuration)
