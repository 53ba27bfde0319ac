"""Public classes and functions that a script imports from `marginweave`."""
