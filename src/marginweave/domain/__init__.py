"""Domain of a table, the cells that it can have: sizes, structural zeros, boxes."""
