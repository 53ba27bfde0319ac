MEASURES = {
    "k_marginal": "k-marginal",
    "pmse": "pMSE",
    "worst_puma": "worst PUMA",
    "inconsistent": "inconsistent",
}
def render(*a): return ""
