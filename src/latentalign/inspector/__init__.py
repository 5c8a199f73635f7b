"""The inspector: a page to look at alignments, and the HTTP API beneath it."""
