"""Beam search, and what it asks of a model."""
