"""The source of a release: its table, with the columns that follow from the rows of linked tables."""
