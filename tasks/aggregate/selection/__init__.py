"""Which marginals are worth their noise: PrivSyn's InDif and DenseMarg."""
