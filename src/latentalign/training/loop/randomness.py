"""Random numbers that depend on where training is, not on how it got there.

Every step seeds its generators from (seed, step, rank). A resumed run therefore needs no saved generator states and
draws exactly what the uninterrupted one draws; so does the repetition of a step that went wrong.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from the parts; different parts give unrelated seeds."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everywhere(seed: int) -> None:
    """Seed torch's global generators. `torch.manual_seed` would do, but records a stack trace each time."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Run a block under torch's global generator seeded from the parts, and put its state back afterwards."""
    state = torch.random.get_rng_state()
    torch.default_generator.manual_seed(derive_seed(*parts))
    try:
        yield
    finally:
        torch.random.set_rng_state(state)
