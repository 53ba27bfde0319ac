"""The audit: what the shipped mechanisms lose, measured on made-up tables. No data of a user's, no ledger, no Prefect."""
