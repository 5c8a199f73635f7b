"""A generated German–English-like corpus whose true links are known."""
