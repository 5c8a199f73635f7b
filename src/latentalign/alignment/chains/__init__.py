"""Alignments that remember: a first-order chain over the positions, exact in everything."""
