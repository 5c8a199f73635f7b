"""What translation costs: every figure as a ratio within one run. See `python -m benchmarks.translation --help`."""
