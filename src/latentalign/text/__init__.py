"""Parallel text and the word links between its sides: what every task that aligns words shares."""
