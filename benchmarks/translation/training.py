"""Tokens a second of whole training steps for each objective, over soft's; memory; and what pruning loses."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import measure
from benchmarks.translation.setting import Setting, Stopwatch, note, summary, take_turns
from latentalign.alignment import Elbo, Enumerate, Marginal, Objective
from latentalign.alignment.registry import build_objective
from latentalign.reports.grid.step_cost import BareLoop

# A published implementation of the same paper, batch 64, same sizes, two threads of a machine on which JoeyNMT trained
# at 894 target tokens a second: tokens a second of its exact marginal, and its peak memory
RELEASED = {"tokens_per_second": 173.0, "joeynmt_tokens_per_second": 894.0, "peak_gb": 8.9}
PRUNING = (0.05, 0.02, 0.01, 0.005, 0.004, 0.002)


def contenders(setting: Setting) -> dict[str, tuple[str, Any]]:
    """Name -> state of training and objective."""
    enumerated = setting.objective("-variational")
    return {
        "soft": ("soft", "soft"),
        "marginal, pruned": ("wake", setting.objective("-marginal")),
        "marginal, pruned, right after soft": ("soft", setting.objective("-marginal")),
        "marginal, dense": ("wake", "marginal"),
        "wake, pruned": ("wake", setting.objective("-variational", 1)),
        "variational, pruned": ("enumerate", enumerated),
        "variational, 1 sample": ("sample", setting.objective("-variational-sample")),
    }


def run(setting: Setting) -> dict[str, Any]:
    """All figures of this section."""
    options = setting.options
    chosen = contenders(setting)
    batches = setting.batches(options.batches)
    loops = {name: setting.loop(*state_and_objective) for name, state_and_objective in chosen.items()}
    diagnostics: dict[str, dict[str, float]] = {name: {} for name in chosen}
    watches = take_turns(
        {
            name: _passes(loop, batches, diagnostics[name], options.turn_seconds)
            for name, loop in loops.items()
        },
        options.rounds,
    )
    del loops
    objectives = {
        name: {
            "state": chosen[name][0],
            "objective": chosen[name][1],
            **summary(watches[name], watches["soft"]),
            **diagnostics[name],
            **_memory(setting, *chosen[name]),
        }
        for name in chosen
    }
    note("gradients of pruned sums against dense ones")
    return {
        "batches": len(batches),
        "decoder_size": setting.run.config.model.decoder_size,
        "target_size": len(setting.run.assets.target),
        "prune": {
            "marginal": setting.objective("-marginal")["prune"],
            "variational": setting.objective("-variational")["estimator"]["prune"],
        },
        "rounds": options.rounds,
        "objectives": objectives,
        "gradients": {
            "marginal": gradient_errors(setting, "wake", _marginal, Marginal()),
            "variational": gradient_errors(setting, "enumerate", _variational, Elbo()),
        },
        "released": RELEASED,
    }


def _passes(
    loop: BareLoop, batches: list[Any], diagnostics: dict[str, float], seconds: float
) -> Callable[[], Stopwatch]:
    """Over the batches again and again, for as long a turn as the others'; one step before is not timed."""

    def call() -> Stopwatch:
        loop.step(batches[len(batches) // 2])
        watch = Stopwatch()
        sums: dict[str, float] = {}
        while watch.seconds < seconds:
            for batch in batches:
                watch.add(lambda batch=batch: _step(loop, batch, sums))
        diagnostics.update({name: value / watch.work for name, value in sums.items()})
        return watch

    return call


def _step(loop: BareLoop, batch: Any, sums: dict[str, float]) -> float:
    outputs, bound = loop.step(batch)
    for name, values in bound.diagnostics.items():
        sums[name] = sums.get(name, 0.0) + float(values[batch.target_mask].sum())
    return outputs


def _memory(setting: Setting, state: str, objective: Any) -> dict[str, float]:
    note(f"memory of {objective} from the state {state}")
    found = measure(
        make_pass,
        rounds=0,  # its time is known already
        threads=setting.threads,
        run=str(setting.run_folder),
        weights=str(setting.state_file(state)),
        objective=objective,
        count=setting.options.batches,
    )
    return {"peak_mib": found["peak_mib"], "extra_mib": found["extra_mib"]}


def make_pass(run: str, weights: str, objective: Any, count: int) -> Callable[[], None]:
    """For a process of its own: steps over the same batches, and over the longest."""
    from safetensors.torch import load_file

    from latentalign.reports.grid.step_cost import longest_batch, spread_batches
    from latentalign.training.run.folders import prepare_again
    from latentalign.training.trained_run import load

    loaded = load(run)
    with prepare_again(loaded.config, loaded.folder, lambda text: None) as prepared:
        batches = [*spread_batches(prepared.train, count), longest_batch(prepared.train)]
    chosen = build_objective(objective)
    model = loaded.task.build_model(
        loaded.config.model, loaded.assets, needs_posterior=chosen.needs_posterior
    )
    model.load_state_dict(load_file(weights), strict=False)
    loop = BareLoop(model, chosen, learning_rate=0.0, clip=5.0)
    loop.step(batches[0])  # the optimiser's own memory is there before and after

    def call() -> None:
        for batch in batches:
            loop.step(batch)

    return call


def _marginal(prune: float) -> Objective:
    return Marginal(prune)


def _variational(prune: float) -> Objective:
    return Elbo(Enumerate(prune))


def gradient_errors(
    setting: Setting,
    state: str,
    pruned: Callable[[float], Objective],
    dense: Objective,
    *,
    count: int = 4,
) -> list[dict[str, float]]:
    """|pruned − dense| / |dense| of the whole gradient on the same batches without dropout, by ε."""
    model = setting.model(state).eval()
    batches = setting.batches(count)
    exact = [gradient(model, dense, batch)[0] for batch in batches]
    rows = []
    for prune in PRUNING:
        found = [gradient(model, pruned(prune), batch) for batch in batches]
        errors = [
            float((mine - other).norm() / other.norm()) for (mine, _), other in zip(found, exact, strict=True)
        ]
        rows.append(
            {
                "prune": prune,
                "relative_error": sum(errors) / len(errors),
                "largest_error": max(errors),
                "dropped_mass": sum(dropped for _, dropped in found) / len(found),
            }
        )
    return rows


def gradient(model: Any, objective: Any, batch: Any) -> tuple[Tensor, float]:
    """The gradient in all parameters as one vector, and the mean mass that was dropped."""
    problem = model.problem(batch, with_posterior=objective.needs_posterior)
    bound = objective(problem)
    weights = problem.weights.to(bound.surrogate.dtype)
    loss = (bound.surrogate * weights).sum() / weights.sum()
    parameters = [*model.theta(), *model.phi()]
    parts = torch.autograd.grad(loss, parameters, allow_unused=True)
    dropped = bound.diagnostics.get("dropped_mass", torch.zeros_like(weights))
    flat = [part.flatten() for part in parts if part is not None]
    return torch.cat(flat), float((dropped * weights).sum() / weights.sum())
