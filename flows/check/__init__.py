"""`marginweave check`: a look at the table for its operator alone, before anything is charged."""
