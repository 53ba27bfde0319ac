"""The stages that draw: of combinations length by length, of marginals, and of marginals chosen in rounds."""
