"""A made-up table of visits and its configuration, which `marginweave example` writes."""
