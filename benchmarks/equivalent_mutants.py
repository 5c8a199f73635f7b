"""Mutants that no test can notice, and why: module -> mutant -> reason."""

_CUT = "what is put where the mask is False is cut off again, and its gradient with it"
_NO_GRAPH = "only values are asked for; without it a graph would be kept longer"

EQUIVALENT: dict[str, dict[str, str]] = {
    "alignment/chains/chain.py": {
        "Chain._matrix: return self.transitions.detach().dense() [drop .detach()]": _NO_GRAPH,
        "Chain.inputs: self.transitions.detach(), [drop .detach()]": _NO_GRAPH,
    },
    "alignment/chains/hidden_markov.py": {
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
}
