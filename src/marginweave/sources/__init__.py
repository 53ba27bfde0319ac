"""Stage 1: read the declared columns of the source and hold them against the configuration."""
