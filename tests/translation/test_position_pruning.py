"""What `sum_where_needed` promises, on many small random beams: every word at every position by plain softmax."""

import pytest
import torch
from torch import nn

from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.translation.beam import position_pruning
from latentalign.translation.beam.position_pruning import sum_everywhere, sum_where_needed
from latentalign.translation.beam.search import BeamStatus
from latentalign.translation.data.tokenizer import END, NEVER

SENTENCES, HYPOTHESES, POSITIONS, WORDS, PLACES = 3, 3, 7, 30, 3
TOLERANCE = 0.05


def random_beam(seed):
    """Likelihood, falling weights, positions and beam; how sharp words and weights are differs."""
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    output = nn.Linear(6, WORDS).double().requires_grad_(False)
    output.weight.copy_(normal(WORDS, 6) * (1.0, 3.0, 8.0)[seed % 3])
    output.bias.copy_(normal(WORDS))
    output.bias[END] += 2.0  # an end that often belongs in the beam
    values, queries = normal(SENTENCES, POSITIONS, 6) * 2, normal(SENTENCES, HYPOTHESES, 6)
    likelihood = ContextLikelihood(SoftmaxHead(output), values, queries, width=WORDS)
    shares = (normal(SENTENCES, HYPOTHESES, POSITIONS) * (0.3, 1.5, 3.0)[seed // 3 % 3]).softmax(-1)
    weights, positions = shares.sort(-1, descending=True)
    log_probs = -torch.rand(SENTENCES, HYPOTHESES, generator=chance, dtype=torch.float64) * 3
    log_probs -= 40.0 * (seed % 2)  # of a long hypothesis
    only_end = torch.tensor([False, False, seed % 4 == 0])
    return likelihood, weights, positions, BeamStatus(log_probs, PLACES, only_end)


def by_definition(likelihood, weights, positions, beam):
    """log p of every continuation with its hypothesis [A,W,V], and the logarithm of every softmax's sum [A,W,K]."""
    output = likelihood.head.output
    values = torch.stack([likelihood.values[a][positions[a]] for a in range(SENTENCES)])  # [A,W,K,H]
    logits = (values + likelihood.queries[:, :, None]).tanh() @ output.weight.T + output.bias
    found = (weights[..., None] * logits.softmax(-1)).sum(2)
    found[..., NEVER] = 0.0
    return found.log() + beam.log_probs[..., None], logits.exp().sum(-1).log()


def log_probs(found, beam):
    scores = found.scores
    return scores.values.log() - scores.log_normalizer[..., None] + beam.log_probs[..., None]


def test_hypotheses_are_compared_with_the_best_of_their_sentence():
    log_probs = torch.tensor([[-41.0, -40.0, -200.0], [-2.0, -5.0, -torch.inf]])
    found = position_pruning._behind_the_best(BeamStatus(log_probs, PLACES, torch.zeros(2, dtype=torch.bool)))
    assert found.tolist() == [[-1.0, 0.0, -60.0], [0.0, -3.0, -60.0]]


@torch.no_grad()
def test_everywhere_is_everywhere():
    likelihood, weights, positions, beam = random_beam(1)
    found = sum_everywhere(likelihood, weights, positions, beam, normalizers=True)
    exact, sums = by_definition(likelihood, weights, positions, beam)
    assert log_probs(found, beam) == pytest.approx(exact)
    assert found.log_normalizers == pytest.approx(sums)
    assert sum_everywhere(likelihood, weights, positions, beam).log_normalizers is None


@torch.no_grad()
@pytest.mark.parametrize(("candidates", "likely"), [(24, 0.25), (4, 1.0), (4, 0.25)])
def test_what_belongs_in_the_beam_is_known_and_nothing_else_gets_in(candidates, likely, monkeypatch):
    monkeypatch.setattr(position_pruning, "CANDIDATES", candidates)
    monkeypatch.setattr(position_pruning, "LIKELY", likely)
    left_out = 0
    for seed in range(36):
        likelihood, weights, positions, beam = random_beam(seed)
        found = sum_where_needed(
            likelihood, weights, positions, beam, end_token=END, tolerance=TOLERANCE, normalizers=True
        )
        exact, sums = by_definition(likelihood, weights, positions, beam)
        told = log_probs(found, beam)
        others = exact.index_fill(2, torch.tensor(END), -torch.inf).flatten(1)
        least = others.topk(PLACES).values[:, -1:, None]
        belongs = exact >= least
        belongs[beam.only_end] = False
        belongs[..., END] |= beam.only_end[:, None]  # then every end counts, and nothing else
        assert (exact - told)[belongs].abs().max() <= TOLERANCE + 1e-9, seed
        outside = ~belongs & ~beam.only_end[:, None, None]
        assert (told <= least + TOLERANCE)[outside].all(), seed
        evaluated = found.log_normalizers.isfinite()
        assert found.log_normalizers[evaluated] == pytest.approx(sums[evaluated])
        left_out += int((~evaluated).sum())
    assert left_out > 0
