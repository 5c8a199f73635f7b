"""An ensemble against the mean of its members' distributions, taken by hand, word by word."""

import math

import pytest
import torch

from latentalign.alignment.prediction import Exact, SoftContext
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.ensemble import log_mean
from latentalign.translation.translate import Translator
from tests.translation.tiny import SENTENCES, tiny_assets, tiny_model

CHAIN = {"name": "chain", "transitions": "jump", "width": 3}
KINDS = [("categorical", Exact()), ("categorical", SoftContext()), (CHAIN, Exact())]
PLAIN = {"length_penalty": 0.0, "eos_penalty": 0.0}


@pytest.fixture(scope="module")
def members():
    assets = tiny_assets()
    models = [
        tiny_model(assets, seed=seed, alignment=alignment, posterior=False)
        for seed, (alignment, _) in enumerate(KINDS)
    ]
    return assets, models


def log_prob(model, predictor, assets, sentence, pieces):
    """Of every piece of an output and its end, by the whole problem at once: no search, no state."""
    batch = make_batch([assets.encode_source(sentence)[0]], [[*pieces, 3]])
    problem = model.problem(batch)
    return predictor.log_likelihood(problem.prior, problem.likelihood)[0]


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_have_the_mean_probability_of_all_members(members, beam):
    assets, models = members
    predictors = [predictor for _, predictor in KINDS]
    options = SearchOptions(beam=beam, n_best=1, max_length_factor=0.5, **PLAIN)
    others = list(zip(models[1:], predictors[1:], strict=True))
    together = Translator(models[0], assets, options=options, predictor=predictors[0], others=others)
    for sentence, (found, *_) in zip(SENTENCES, together.translate(SENTENCES), strict=True):
        each = [
            log_prob(m, p, assets, sentence, found.pieces) for m, p in zip(models, predictors, strict=True)
        ]
        by_hand = 0.0
        for step in range(len(found.pieces) + 1):
            by_hand += math.log(sum(math.exp(float(one[step])) for one in each) / len(each))
        assert found.log_prob == pytest.approx(by_hand, abs=1e-4)


@torch.no_grad()
def test_a_model_with_itself_is_the_model(members):
    assets, models = members
    options = SearchOptions(beam=3, max_length_factor=0.5)
    alone = Translator(models[0], assets, options=options, predictor=Exact())
    twice = Translator(models[0], assets, options=options, predictor=Exact(), others=[(models[0], Exact())])
    texts = [[one.text for one in found] for found in alone.translate(SENTENCES)]
    assert [[one.text for one in found] for found in twice.translate(SENTENCES)] == texts


def test_the_mean_of_probabilities_by_hand():
    members = [
        torch.tensor([0.5, 0.1]).log(),
        torch.tensor([0.25, 0.3]).log(),
        torch.tensor([0.0, 0.2]).log(),
    ]
    assert log_mean(members).tolist() == pytest.approx([math.log(0.25), math.log(0.2)])
