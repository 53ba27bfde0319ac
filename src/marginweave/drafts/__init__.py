"""Looks at a table and drafts a configuration for its steward."""
