"""The pruned sums of the search against the predictors' own log-probabilities."""

from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch

from latentalign.alignment.likelihoods import softmax_head
from latentalign.alignment.registry import parse_inference
from latentalign.translation.beam import position_pruning
from latentalign.translation.beam.decoding import PredictiveDecoder, SearchState
from latentalign.translation.beam.search import BeamStatus, Scores, SearchOptions, beam_search
from latentalign.translation.data.dataset import make_batch, pad
from latentalign.translation.data.tokenizer import END, NEVER, START
from latentalign.translation.translate import Translator
from tests.translation.tiny import NETWORKS, SENTENCES, tiny_assets, tiny_model

ASSETS = tiny_assets()


@dataclass(frozen=True)
class SlowDecoder:
    """Every position of every hypothesis, by the core's predictor."""

    model: object
    predictor: object
    start_token: int = START
    end_token: int = END

    def start(self, memory):
        return SearchState(memory.start)

    def step(self, memory, state, tokens, beam):
        prior, queries, decoder = self.model.step(memory, state.decoder, tokens)
        log_probs = self.predictor.log_probs(prior, self.model.likelihood(memory, queries))
        log_probs[..., NEVER] = -torch.inf
        return Scores(log_probs, torch.zeros_like(tokens, dtype=log_probs.dtype)), SearchState(decoder)


def log_probs(scores):
    """Of all tokens after every hypothesis: [A,W,V]."""
    return scores.log_probs(
        torch.arange(scores.log_normalizer.numel()).view(scores.log_normalizer.shape)[..., None],
        scores.values,
    )


def search(model, decoder, **options):
    tokens, mask = pad([ASSETS.encode_source(sentence)[0] for sentence in SENTENCES])
    with torch.no_grad():
        memory = model.encode(tokens, mask)
        return beam_search(
            decoder, memory, decoder.start(memory), mask.sum(1), options=SearchOptions(**options)
        )


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("inference", ["exact", "kmax:3", "kmax:100", "soft"])
def test_nothing_left_out_is_the_predictor(inference, network):
    model, predictor = tiny_model(ASSETS, **NETWORKS[network]), parse_inference(inference)
    tokens, mask = pad([ASSETS.encode_source(sentence)[0] for sentence in SENTENCES])
    with torch.no_grad():
        memory = model.encode(tokens, mask)
        words = torch.full((len(tokens), 1), START)
        beam = BeamStatus(torch.zeros(len(tokens), 1), 10, torch.zeros(len(tokens), dtype=torch.bool))
        fast, _ = PredictiveDecoder(model, predictor, tolerance=0.0).step(
            memory, SearchState(memory.start), words, beam
        )
        slow, _ = SlowDecoder(model, predictor).step(memory, SearchState(memory.start), words, beam)
    found = log_probs(fast)
    # the slow one keeps log 0 finite
    expected = slow.values.clamp_min(-600)
    assert found.clamp_min(-600) == pytest.approx(expected, abs=1e-5)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("beam", [1, 3, 10])
@pytest.mark.parametrize("inference", ["exact", "kmax:4"])
@pytest.mark.parametrize(
    ("scale", "network"), [(1.5, "lstm"), (4.0, "lstm"), (8.0, "lstm"), (1.5, "transformer"), (1.5, "cross")]
)
def test_leaving_out_what_cannot_matter_finds_the_same_translations(inference, beam, scale, network):
    model, predictor = tiny_model(ASSETS, scale=scale, **NETWORKS[network]), parse_inference(inference)
    options = {"beam": beam, "n_best": 1, "eos_penalty": 0.3, "max_length_factor": 0.5}
    fast = search(model, PredictiveDecoder(model, predictor, tolerance=1e-6), **options)
    slow = search(model, SlowDecoder(model, predictor), **options)
    for one, other in zip(fast, slow, strict=True):
        assert one[0].tokens == other[0].tokens
        assert one[0].score == pytest.approx(other[0].score, abs=1e-4)


@pytest.fixture(params=[False, True], ids=["one block", "small blocks"])
def blocks(request, monkeypatch):
    """Everything at once, or a few pairs and two sentences at a time."""
    if request.param:
        monkeypatch.setattr(softmax_head, "BLOCK_ELEMENTS", 1)
        monkeypatch.setattr(position_pruning, "BOUNDED_TOGETHER", 2)


@pytest.fixture(params=[(24, 0.25), (24, 1.0), (6, 0.25), (6, 1.0)], ids=str)
def candidates(request, monkeypatch):
    """Many or few candidates, many or few positions evaluated at first."""
    monkeypatch.setattr(position_pruning, "CANDIDATES", request.param[0])
    monkeypatch.setattr(position_pruning, "LIKELY", request.param[1])


def one_step(model, seed):
    """Memory, state, tokens and beam of four hypotheses of every sentence."""
    tokens, mask = pad([ASSETS.encode_source(sentence)[0] for sentence in SENTENCES])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        memory = model.encode(tokens, mask)
        state = SearchState(memory.start).select(torch.arange(len(tokens)).repeat_interleave(4))
    words = torch.randint(4, len(ASSETS.target), (len(tokens), 4), generator=generator)
    alive = -torch.rand(len(tokens), 4, generator=generator).double() * 8
    alive[0, 1] = -torch.inf  # one that does not exist
    return memory, state, words, BeamStatus(alive, 4, torch.zeros(len(tokens), dtype=torch.bool))


@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_a_hypothesis_far_behind_keeps_its_probabilities(tolerance):
    model, predictor = tiny_model(ASSETS), parse_inference("exact")
    memory, state, words, beam = one_step(model, 0)
    beam.log_probs[:, 1], beam.log_probs[:, 2] = -200.0, -torch.inf
    beam.only_end[:] = True  # so that every end counts
    with torch.no_grad():
        fast, _ = PredictiveDecoder(model, predictor, tolerance=tolerance).step(memory, state, words, beam)
        slow, _ = SlowDecoder(model, predictor).step(memory, state, words, beam)
    assert log_probs(fast)[..., END] == pytest.approx(slow.values[..., END], abs=1e-5)


@pytest.mark.usefixtures("blocks", "candidates")
@pytest.mark.parametrize("bounds", [True, False])
@pytest.mark.parametrize("inference", ["exact", "kmax:4"])
def test_the_tolerance_bounds_the_error_of_every_step(inference, bounds, monkeypatch):
    predictor, tolerance, saved, errors = parse_inference(inference), 0.05, [], []
    for seed in range(8):
        model = tiny_model(ASSETS, scale=[1.5, 4.0, 8.0, 16.0][seed % 4])
        if not bounds:
            monkeypatch.setattr(position_pruning, "SoftmaxHead", type(None))  # no head has them
        memory, state, words, beam = one_step(model, seed)
        with torch.no_grad():
            fast, _ = PredictiveDecoder(model, predictor, tolerance=tolerance).step(
                memory, state, words, beam
            )
            slow, _ = SlowDecoder(model, predictor).step(memory, state, words, beam)
        exact = (slow.values + beam.log_probs[:, :, None]).flatten(1)
        found = (log_probs(fast) + beam.log_probs[:, :, None]).flatten(1)
        ends = exact.view(*beam.log_probs.shape, -1)[..., END]
        least = exact.view(*beam.log_probs.shape, -1).index_fill(2, torch.tensor(END), -torch.inf)
        least = least.flatten(1).topk(4).values[:, -1:]
        # the best four besides the end are the same and have their probabilities, and so have ends among them
        enters = (exact >= least).view(*beam.log_probs.shape, -1)
        enters[..., END] = ends >= least
        error = (exact - found).view(enters.shape)[enters].abs()
        assert error.max() <= tolerance + 1e-6
        assert (found.view(enters.shape) <= least[..., None] + tolerance)[~enters].all()
        errors.append(error.max())
        saved.append((exact - found).nan_to_num(0.0).abs().max())
    assert max(saved) > tolerance  # elsewhere work was saved
    assert max(errors) > 0


@pytest.mark.parametrize("again", [True, False])
def test_a_word_that_is_no_candidate_is_found(again, monkeypatch):
    evaluate, counts = position_pruning._PartialSums.evaluate, []

    def counted(sums, where):
        counts.append(int(where.sum()))
        if again or len(counts) < 3:  # the likely ones, the needed ones, where a word was missed
            evaluate(sums, where)

    monkeypatch.setattr(position_pruning, "CANDIDATES", 6)
    monkeypatch.setattr(position_pruning, "LIKELY", 1.0)
    monkeypatch.setattr(position_pruning._PartialSums, "evaluate", counted)
    worst = 0.0
    for seed in range(40):
        counts.clear()
        model, predictor = tiny_model(ASSETS, scale=16.0), parse_inference("exact")
        memory, state, words, beam = one_step(model, seed)
        with torch.no_grad():
            fast, _ = PredictiveDecoder(model, predictor, tolerance=0.05).step(memory, state, words, beam)
            slow, _ = SlowDecoder(model, predictor).step(memory, state, words, beam)
        if counts[2]:
            exact = slow.values + beam.log_probs[:, :, None]
            error = exact - log_probs(fast) - beam.log_probs[:, :, None]
            best = exact.index_fill(2, torch.tensor(END), -torch.inf).flatten(1).topk(4).indices
            worst = max(worst, float(error.flatten(1).gather(1, best).abs().max()))
    # without it a word would be missed
    assert 0 < worst <= 0.05 if again else worst > 0.05


def test_work_is_saved(monkeypatch):
    model, predictor = tiny_model(ASSETS), parse_inference("exact")
    with torch.no_grad():
        model.score.energy.weight.mul_(8)  # a prior that has made up its mind
    rows, head = [], softmax_head.SoftmaxHead.__call__
    monkeypatch.setattr(
        softmax_head.SoftmaxHead,
        "__call__",
        lambda self, values, queries: rows.append(len(values)) or head(self, values, queries),
    )
    options = {"beam": 5, "max_length_factor": 0.5}
    search(model, PredictiveDecoder(model, predictor, tolerance=0.0), **options)
    everything, before = sum(rows), len(rows)
    search(model, PredictiveDecoder(model, predictor), **options)
    assert 0 < sum(rows[before:]) < 0.6 * everything


def test_only_the_end_left_needs_its_exact_probability():
    model, predictor = tiny_model(ASSETS), parse_inference("exact")
    options = {"beam": 3, "max_length_factor": 0.01}
    fast = search(model, PredictiveDecoder(model, predictor, tolerance=1e-6), **options)
    slow = search(model, SlowDecoder(model, predictor), **options)
    for one, other in zip(fast, slow, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.log_prob for h in one] == pytest.approx([h.log_prob for h in other], abs=1e-4)


def test_samples_are_mixed_by_their_counts():
    model, predictor = tiny_model(ASSETS), parse_inference("sample:4000")
    tokens, mask = pad([ASSETS.encode_source(sentence)[0] for sentence in SENTENCES])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        memory = model.encode(tokens, mask)
        words = torch.full((len(tokens), 1), START)
        beam = BeamStatus(torch.zeros(len(tokens), 1), 3, torch.zeros(len(tokens), dtype=torch.bool))
        decoder = PredictiveDecoder(model, predictor, generator, tolerance=0.0)
        found, _ = decoder.step(memory, SearchState(memory.start), words, beam)
        slow, _ = SlowDecoder(model, parse_inference("exact")).step(
            memory, SearchState(memory.start), words, beam
        )
    assert found.values.sum(-1) == pytest.approx(torch.ones(len(tokens), 1).double(), abs=0.05)
    assert found.values == pytest.approx(slow.values.exp(), abs=0.03)


@pytest.mark.parametrize("precision", ["bfloat16", "autocast", "other default"])
@pytest.mark.parametrize(
    ("inference", "settings"),
    [
        *((inference, {"input_feeding": True}) for inference in ("exact", "kmax:3", "sample:5", "soft")),
        ("exact", NETWORKS["cross"]),
        ("soft", NETWORKS["transformer"]),
    ],
    ids=["exact", "kmax", "sample", "soft", "exact cross", "soft transformer"],
)
def test_a_search_reports_what_the_model_says_in_any_precision(precision, inference, settings):
    predictor = parse_inference(inference)
    model = tiny_model(ASSETS, scale=2.0, **settings).float()
    asked = tiny_model(ASSETS, scale=2.0, **settings).float()
    translator = Translator(
        asked.bfloat16() if precision == "bfloat16" else asked,
        ASSETS,
        predictor=predictor,
        options=SearchOptions(beam=3, max_length_factor=0.5),
    )
    with ExitStack() as stack:
        if precision == "autocast":
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        if precision == "other default":
            torch.set_default_dtype(torch.float64)
            stack.callback(torch.set_default_dtype, torch.float32)
        found = translator.translate(SENTENCES, alignments=True)
    if inference.startswith("sample"):  # other samples: only that it ends
        assert all(rows[0].log_prob < 0 for rows in found)
        return
    pieces = [list(rows[0].pieces) for rows in found]
    batch = make_batch(
        [ASSETS.encode_source(sentence)[0] for sentence in SENTENCES], [[*row, END] for row in pieces]
    )
    with torch.no_grad():
        problem = model.problem(batch)
        expected = (predictor.log_likelihood(problem.prior, problem.likelihood) * problem.weights).sum(1)
    # bfloat16 has 8 bits; a sum over some thirty steps
    close = 1e-4 if precision == "other default" else 0.1
    assert [rows[0].log_prob for rows in found] == pytest.approx(expected.tolist(), rel=close, abs=close)
