"""Last stage: what may leave: counts, records, the privacy statement, and two pages for people."""
