"""Measurements behind the claims: each module prints a table and, with --json FILE, writes it."""
