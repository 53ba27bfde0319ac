"""Privacy accounting: what mechanisms cost together, and the plan of a release's draws."""
