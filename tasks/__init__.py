"""One folder a stage, in the order of the data; `budget` and `checkpoint` serve them all."""
