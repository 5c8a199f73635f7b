"""What a chain costs: beside torch-struct's, beside independent steps in training, and pruned.

    pip install --no-deps --target peers/torch-struct torch-struct==0.5
    make bench-chain                 # or: python -m benchmarks.chain --peer peers/torch-struct --json FILE

Without `--peer` the comparison with torch-struct is left out. Ratios are of processor seconds, taken in turns in one
run.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import measure, report
from latentalign.alignment import (
    Additive,
    AlignmentProblem,
    Categorical,
    Chain,
    ContextLikelihood,
    Jumps,
    Marginal,
    MatrixTransitions,
    SoftmaxHead,
)

BATCH = 32
SIZES = (25, 100)
# torch-struct needs 8 GB for each tensor of 32 examples of size 100: there it gets one of the 32
PEER_EXAMPLES, PEER_AT_ONCE = {25: 32, 100: 1}, {25: 32, 100: 1}
TRAINING = {
    "batch": 64,
    "steps": 16,
    "positions": 16,
    "features": 256,
    "vocabulary": 3400,
}  # Multi30k's recipe
PRUNE = 0.01


def leaves(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, jumps and log f of a batch; the same every time."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((BATCH, size, size), (size, size), (BATCH, size, size))
    scores, jumps, log_f = (torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes)
    return scores, jumps, log_f


def make_ours(size: int) -> Callable[[], Tensor]:
    """Forward and backward pass of a chain; returns the evidence [B]."""
    given = leaves(size)

    def run() -> Tensor:
        scores, jumps, log_f = given
        chain = Chain.from_scores(scores, transitions=MatrixTransitions(jumps))
        evidence = chain.marginalise(log_f).surrogate.sum(dim=-1)
        torch.autograd.grad(evidence.sum(), given)
        return evidence.detach()

    return run


def make_peer(size: int, peer: str) -> Callable[[], Tensor]:
    """The same by torch-struct, from log p(z_t | z_{t−1}) f as its edges; in parts where memory is short."""
    sys.path.insert(0, peer)
    warnings.simplefilter("ignore")
    import torch_struct

    given = leaves(size)
    at_once = PEER_AT_ONCE[size]

    def part(rows: slice) -> Tensor:
        scores, jumps, log_f = given[0][rows], given[1], given[2][rows]
        moves = (scores[:, 1:, None] + jumps).log_softmax(dim=-1)  # [b,T−1,k,i]
        edges = moves + log_f[:, 1:, None]
        first = scores[:, 0].log_softmax(dim=-1) + log_f[:, 0]
        edges = torch.cat([edges[:, :1] + first[:, None, :, None], edges[:, 1:]], dim=1)
        evidence = torch_struct.LinearChainCRF(edges.transpose(-1, -2)).partition
        torch.autograd.grad(evidence.sum(), given)
        return evidence.detach()  # type: ignore[no-any-return]

    def run() -> Tensor:
        parts = [part(slice(start, start + at_once)) for start in range(0, PEER_EXAMPLES[size], at_once)]
        return torch.cat(parts)

    return run


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each call, taken in turns; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if number:
                times[name].append(time.process_time() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def against_peer(size: int, peer: str, rounds: int) -> dict[str, Any]:
    """Times and memory of both, and how far their evidence is apart."""
    ours, theirs = make_ours(size), make_peer(size, peer)
    apart = float((ours()[: PEER_EXAMPLES[size]] - theirs()).abs().max())
    seconds = in_turns({"ours": ours, "torch-struct": theirs}, rounds)
    seconds["torch-struct"] *= BATCH / PEER_EXAMPLES[size]
    memory = {
        "ours": measure(make_ours, rounds=0, threads=1, size=size)["extra_mib"],
        "torch-struct": measure(make_peer, rounds=0, threads=1, size=size, peer=peer)["extra_mib"],
    }
    return {
        "size": size,
        "batch": BATCH,
        "torch_struct_examples": PEER_EXAMPLES[size],
        "torch_struct_examples_at_once": PEER_AT_ONCE[size],
        "seconds": seconds,
        "extra_mib": memory,
        "times_faster": seconds["torch-struct"] / seconds["ours"],
        "share_of_memory": memory["ours"] / memory["torch-struct"],
        "largest_difference": apart,
    }


class Layer(nn.Module):
    """The part of a training step that depends on the alignment: scores, f of every pair, the marginal."""

    def __init__(self) -> None:
        super().__init__()
        size = TRAINING["features"]
        self.score = Additive(size, size, size)
        self.jumps = Jumps(10)
        self.from_memory, self.from_query = nn.Linear(size, size), nn.Linear(size, size)
        self.output = nn.Linear(size, TRAINING["vocabulary"])

    @torch.no_grad()
    def say_what_is_read(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, memory and targets such that f knows its word at the right position, as a trained one does."""
        batch, steps, positions, size = (TRAINING[x] for x in ("batch", "steps", "positions", "features"))
        signs = torch.randn(TRAINING["vocabulary"], size).sign()  # a word's vector
        self.output.weight.copy_(0.04 * signs)
        self.from_memory.weight.copy_(torch.eye(size))
        self.from_query.weight.mul_(0.5)
        words = torch.randint(TRAINING["vocabulary"], (batch, positions))
        place = (torch.arange(steps) + torch.randint(-1, 2, (batch, steps))).clamp(0, positions - 1)
        return torch.randn(batch, steps, size), 1.5 * signs[words], words.gather(1, place)

    def problem(self, data: tuple[Tensor, Tensor, Tensor], *, remembers: bool) -> AlignmentProblem:
        queries, memory, targets = data
        scores = self.score(queries, memory)
        prior = (
            Chain.from_scores(scores, transitions=self.jumps(memory.shape[1]))
            if remembers
            else Categorical.from_scores(scores)
        )
        f = ContextLikelihood(
            SoftmaxHead(self.output), self.from_memory(memory), self.from_query(queries), targets
        )
        return AlignmentProblem(prior, f)

    def gradient(
        self, data: tuple[Tensor, Tensor, Tensor], *, remembers: bool, prune: float
    ) -> tuple[Tensor, float]:
        bound = Marginal(prune=prune)(self.problem(data, remembers=remembers))
        slopes = torch.autograd.grad(
            bound.surrogate.mean(), list(self.parameters()), allow_unused=True, materialize_grads=True
        )
        dropped = bound.diagnostics.get("dropped_mass", torch.zeros(()))
        return torch.cat([slope.flatten() for slope in slopes]), float(dropped.mean())


def training(rounds: int) -> dict[str, Any]:
    """A step by the chain's marginal beside one by independent steps, dense and pruned, and what pruning costs."""
    torch.manual_seed(0)
    layer = Layer()
    with torch.no_grad():  # a chain that prefers to go on by one, as alignments of sentences do
        distance = torch.arange(-10, 11).float()
        layer.jumps.scores.copy_(-(distance - 1).abs() / 3)
    sizes, data = TRAINING, layer.say_what_is_read()
    calls = {
        f"{name}{', pruned' if prune else ''}": (
            lambda remembers=remembers, prune=prune: layer.gradient(data, remembers=remembers, prune=prune)
        )
        for name, remembers in (("independent", False), ("chain", True))
        for prune in (0.0, PRUNE)
    }
    seconds = in_turns(calls, rounds)
    errors, dropped = {}, {}
    for name in ("independent", "chain"):
        exact, _ = calls[name]()
        found, dropped[name] = calls[f"{name}, pruned"]()
        errors[name] = float((found - exact).norm() / exact.norm())
    return {
        "sizes": sizes,
        "prune": PRUNE,
        "seconds": seconds,
        "chain_over_independent": seconds["chain"] / seconds["independent"],
        "pruned_over_dense": {
            name: seconds[f"{name}, pruned"] / seconds[name] for name in ("independent", "chain")
        },
        "relative_gradient_error": errors,
        "dropped_mass": dropped,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a folder with torch-struct")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"threads": options.threads}
    if options.peer:
        results["torch_struct"] = [against_peer(size, options.peer, options.rounds) for size in SIZES]
        for row in results["torch_struct"]:
            print(
                f"B={BATCH} S=T={row['size']}: {row['times_faster']:.1f} times faster than torch-struct, "
                f"{row['share_of_memory']:.3f} of its memory",
                flush=True,
            )
    results["training"] = found = training(options.rounds)
    print(f"training step, chain / independent: {found['chain_over_independent']:.2f}")
    for name in ("independent", "chain"):
        print(
            f"{name}, pruned at {PRUNE}: {found['pruned_over_dense'][name]:.2f} of the dense time, "
            f"gradient off by {found['relative_gradient_error'][name]:.1%}"
        )
    report("chain", results, options.json)


if __name__ == "__main__":
    main()
