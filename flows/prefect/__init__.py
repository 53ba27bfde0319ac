"""Everything that starts, watches and talks to Prefect."""
