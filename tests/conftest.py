"""Shared by every test: quiet threads, and property tests that try the same examples on every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)  # tensors here are tiny; threads would only fight over the cores

settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, max_examples=30)
settings.load_profile("repeatable")
