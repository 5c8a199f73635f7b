"""Expectation–maximisation: counts, what is estimated from them, and rounds over shards."""
