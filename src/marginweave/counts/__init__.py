"""Stage 4: bounded counts of attribute combinations, noise, thresholds; one draw for the record count and one a length."""
