"""Files of a run, which survive a crash."""
