"""Which cells a table can have: sizes, structural zeros, boxes."""
