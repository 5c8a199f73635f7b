"""Mutants that no test can notice, and why: module -> mutant -> reason."""

EQUIVALENT: dict[str, dict[str, str]] = {}
