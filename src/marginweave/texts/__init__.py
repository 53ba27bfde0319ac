"""The sentences of pages and commands, apart from the facts in them: one file of texts for each page."""
