"""Mutants that no test can notice, and why: module -> mutant -> reason."""

_CUT = "what is put where the mask is False is cut off again, and its gradient with it"
_NO_GRAPH = "only values are asked for; without it a graph would be kept longer"

EQUIVALENT: dict[str, dict[str, str]] = {
    "alignment/chains/chain.py": {
        "Chain._matrix: return self.transitions.detach().dense() [drop .detach()]": _NO_GRAPH,
        "Chain.inputs: self.transitions.detach(), [drop .detach()]": _NO_GRAPH,
    },
    "alignment/chains/evidence.py": {
        "_minus: return x if x is None or y is None else x - y [Or -> And]": "both are None, or neither is",
    },
    "alignment/chains/hidden_markov.py": {
        "_forward: torch.sum(after, dim=-1, keepdim=True, out=total).clamp_min_(tiny) [sum -> mean]": (
            "any scale will do that keeps the numbers in range: the sum of the last memory makes up for it"
        ),
        "_backward: onward[-1:] = last [1 -> 0]": "the loop overwrites all but the last",
    },
    "alignment/latents/categorical.py": {
        "_log_on: return probs.masked_fill(~support, 1.0).log().masked_fill(~support, -torch.inf) [1.0 -> 0.0]": _CUT,
    },
    "alignment/latents/continuous.py": {
        "Dirichlet.entropy: alpha = self.concentration.masked_fill(~self.mask, 1.0) [1.0 -> 0.0]": _CUT,
    },
    "alignment/latents/pruning.py": {
        "marginalise_pruned: share = everywhere.softmax(dim=-1).nan_to_num(0.0)  # NaN where no position can give the "
        "output [0.0 -> 1.0]": "an output that no position can give has no gradient, whatever its shares",
    },
    "alignment/likelihoods/softmax_head.py": {
        "SoftmaxHead.among: found = values.new_empty(*rows[0].shape, words.shape[1], dtype=widened(values.dtype)) "
        "[0 -> 1]": "both rows have one shape",
    },
    "translation/beam/position_pruning.py": {
        "_PartialSums.evaluate: for block in blocks(len(pairs), flat.shape[1]): [1 -> 0]": (
            "only how many pairs are worked on at a time"
        ),
        "_PartialSums._weighted_probs: if self.log_normalizers is not None and largest is not None: [And -> Or]": (
            "both are None, or neither is"
        ),
        "_Candidates.needed: scale.masked_fill_(summed + _per_row(summed, rows, bounds) <= self.threshold, 0.0) "
        "[0.0 -> 1.0]": "more is evaluated than is needed",
        "_Candidates.needed: change = torch.zeros_like(left)  # [A,W,K] by each position at most, in nats "
        "[zeros_like -> ones_like]": (
            "of positions that are not left out anyway; a change of more than 1 nat is beyond any tolerance"
        ),
    },
    "translation/beam/search.py": {
        "_Beam.start: length=torch.zeros(pool, dtype=torch.long, device=device), [zeros -> ones]": (
            "of places without a hypothesis, which nobody reads"
        ),
        "_done: options.normalizer(torch.full_like(log_prob, step + 1)), [1 -> 0]": (
            "a looser upper bound under a negative length penalty: the search ends later, with the same result"
        ),
    },
    "translation/align.py": {
        "TranslationAligner.has_posterior: return len(self.model.phi()) > 0 [0 -> 1]": (
            "an inference network has more than one parameter"
        ),
        "TranslationAligner._groups: real.sort(key=lambda number: (len(pairs[number].target), "
        "len(pairs[number].source))) [drop the statement]": "other batches, the same alignments: only speed",
    },
    "wordalign/calibration.py": {
        "_logistic: return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))) [50.0 -> 100.0]": (
            "a limit against overflow; the probability is 2e-22 there"
        ),
    },
    "wordalign/estimation/counts.py": {
        "SparseCounts.total: part.part(slice(place[number], place[number + 1])) [Add -> Sub]": (
            "the first range takes all and the others nothing: only memory"
        ),
    },
    "wordalign/estimation/expectation.py": {
        "LoadedShard.__init__: self.numbers = tuple(torch.from_numpy(np.append(words.numbers, -1)) "
        "for words in (source, target)) [1 -> 0]": "nothing jumps from padding, whatever its class",
    },
}
