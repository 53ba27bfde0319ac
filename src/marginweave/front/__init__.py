"""What a script imports as `marginweave`."""
