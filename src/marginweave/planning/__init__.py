"""The plan of a release: its draws, and how the budget is split over them."""
