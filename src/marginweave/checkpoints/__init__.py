"""The files of a run, which survive a crash."""
