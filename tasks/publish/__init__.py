"""Last stage: what may leave: counts, records, the privacy statement and a plain report."""
