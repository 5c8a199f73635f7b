"""Paths, hop targets and the losses of supporting facts, against plain loops."""

import itertools
import math

import torch

from latentalign.memory.reading import fact_loss, hop_marginals, hop_targets, walk_paths


def test_paths_are_the_product_of_hops() -> None:
    torch.manual_seed(1)
    state = torch.randn(1, 4, dtype=torch.float64)
    keys = [torch.randn(1, 3, 4, dtype=torch.float64) for _ in range(2)]
    values = [torch.randn(1, 3, 4, dtype=torch.float64) for _ in range(2)]
    mask = torch.tensor([[True, True, False]])
    log_path, path_mask, states = walk_paths(state, keys, values, mask, keep=lambda u: 0.5 * u)
    total = 0.0
    for path, (first, second) in enumerate(itertools.product(range(3), repeat=2)):
        real = first < 2 and second < 2
        assert bool(path_mask[0, path]) == real
        if not real:
            continue
        u = state[0]
        log_p = 0.0
        for hop, slot in enumerate((first, second)):
            scores = [float(u @ keys[hop][0, i]) for i in range(2)]
            log_p += scores[slot] - math.log(sum(map(math.exp, scores)))
            u = 0.5 * u + values[hop][0, slot]
        assert math.isclose(float(log_path[0, path]), log_p, rel_tol=1e-9)
        torch.testing.assert_close(states[0, path], u)
        total += math.exp(log_p)
    assert math.isclose(total, 1.0, rel_tol=1e-9)


def test_marginals_of_hops_add_up() -> None:
    probs = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    torch.testing.assert_close(hop_marginals(probs, 2, 2), torch.tensor([[[0.3, 0.7], [0.4, 0.6]]]))
    torch.testing.assert_close(hop_marginals(probs, 1, 4), probs[:, None])


def test_hop_targets_repeat_the_last_fact_or_keep_the_last_ones() -> None:
    support = torch.tensor([[5, -1, -1, -1], [5, 3, -1, -1], [5, 3, 8, 1], [-1, -1, -1, -1]])
    assert hop_targets(support, 3).tolist() == [[5, 5, 5], [5, 3, 3], [3, 8, 1], [-1, -1, -1]]
    assert hop_targets(support, 1).tolist() == [[5], [3], [1], [-1]]


def test_fact_losses() -> None:
    scores = torch.tensor([[2.0, 1.95, 7.0], [0.0, 1.0, 7.0], [3.0, 0.0, 7.0]])
    mask = torch.tensor([[True, True, False]] * 3)
    target = torch.tensor([0, 0, -1])
    likelihood = fact_loss(scores, mask, target)
    expected = [-math.log(1 / (1 + math.exp(-0.05))), -math.log(1 / (1 + math.e)), 0.0]
    torch.testing.assert_close(likelihood, torch.tensor(expected))
    ranking = fact_loss(scores, mask, target, margin=0.1)
    torch.testing.assert_close(ranking, torch.tensor([0.05, 1.1, 0.0]))
