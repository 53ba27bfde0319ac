"""Stage 2: texts to clean values: trimmed, missing made explicit, clamped to the declared domain."""
