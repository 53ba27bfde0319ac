"""GUM: records that are moved, marginal by marginal, until they agree with noisy counts (PrivSyn, section 5)."""
