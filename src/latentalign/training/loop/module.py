"""One Lightning module for every task: it asks the model for a problem, the objective for a bound, and steps."""

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from latentalign.alignment.errors import NonFiniteError
from latentalign.training.loop.not_finite import explain_gradients, explain_step
from latentalign.training.loop.randomness import derive_seed, seed_everywhere
from latentalign.training.loop.stream import Place, Share, Step, Stream
from latentalign.training.recipe.schedule import Phase, Schedule
from latentalign.training.recipe.sections import TrainingConfig
from latentalign.training.run.processes import World, gather, is_active, sum_over_ranks
from latentalign.training.run.stopping import NonFinite

# what a step sums up over its outputs, each weighted; the last one counts the outputs
TOTALS = ("loss", "bound", "log_likelihood", "kl", "prior_entropy", "outputs")


class AlignmentModule(LightningModule):
    """Trains any task model by the phases of a schedule.

    The loss is `−Σ w·surrogate / Σ w` (and the model's penalty) over the outputs of the whole step, over all ranks and
    accumulated batches: how a step is split changes nothing but rounding.
    """

    def __init__(
        self,
        model: Any,
        schedule: Schedule,
        training: TrainingConfig,
        *,
        stream: Stream,
        seed: int,
        world: World | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model: Any = model
        self._parts = (list(model.theta()), list(model.phi()))
        # running means and the like travel in checkpoints
        self.objectives = nn.ModuleList(
            part for phase in schedule.phases for part in phase.objective.modules()
        )
        self.schedule = schedule
        self.training_config = training
        self.seed = seed
        self.world = world or World()
        self.phase: Phase | None = None
        self.place = Place()  # the next step to take
        self.step = 0  # updates made
        self.position = 0.0  # epochs seen
        self.stream = stream  # its start is set when a checkpoint is loaded
        self.totals: Tensor | None = None  # [len(TOTALS)], since the last time they were taken
        self.gradient_norm = 0.0
        self._generator: torch.Generator | None = None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        config = self.training_config
        # the inference network and the generative model share one Adam; parameters without a gradient stay put
        groups = [
            group
            for name, parameters in (("theta", self.model.theta()), ("phi", self.model.phi()))
            for group in _groups(name, list(parameters), config.weight_decay)
        ]
        settings: dict[str, Any] = {"lr": config.learning_rate, "betas": config.betas, "eps": config.eps}
        return torch.optim.AdamW(groups, **settings, weight_decay=0.0, fused=True)

    def enter(self, phase: Phase) -> None:
        """Freeze and unfreeze what the phase says."""
        self.phase = phase
        for parameter in self.model.theta():
            parameter.requires_grad_(phase.trains_theta)
        for parameter in self.model.phi():
            parameter.requires_grad_(phase.trains_phi and phase.needs_posterior)

    def leaves_out_parameters(self, step: Step) -> bool:
        """Whether a trial of this step leaves a trained parameter without a gradient; nothing is changed by it."""
        before = {name: value.clone() for name, value in self.objectives.state_dict().items()}
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        try:
            loss, _ = self.measure(step.shares[0], self.seed_step(0))
            gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        except NonFiniteError:
            return False  # the step itself reports it
        finally:
            self.objectives.load_state_dict(before)
        return any(gradient is None for gradient in gradients)

    def seed_step(self, number: int) -> torch.Generator:
        """Seed dropout (torch's global generator) and the objective's own generator for one micro-batch."""
        if self._generator is None:
            self._generator = torch.Generator(device=self.device)
        seed = derive_seed(self.seed, "step", self.step, number, self.world.rank)
        seed_everywhere(seed)
        return self._generator.manual_seed(derive_seed(seed, "objective"))

    def training_step(self, step: Step, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        totals = self._learn_at_once(step) if len(step.shares) == 1 else self._learn_in_parts(step)
        self._clip(step)
        optimizer.step()
        optimizer.zero_grad()
        self.totals = totals if self.totals is None else self.totals + totals
        self.step += 1
        self.place, self.position = step.next, step.end

    def _learn_at_once(self, step: Step) -> Tensor:
        loss, totals = self._forward(step, 0)
        self.manual_backward(loss * (self.world.size / totals[-1]))
        return totals

    def _learn_in_parts(self, step: Step) -> Tensor:
        """Accumulate unscaled gradients, then divide by the number of outputs, known only at the end."""
        totals = torch.zeros(len(TOTALS), device=self.device)
        for number in range(len(step.shares)):
            loss, part = self._forward(step, number)
            totals = totals + part
            self._backward_part(loss * self.world.size, last=number == len(step.shares) - 1)
        if gradients := self._gradients():
            torch._foreach_mul_(gradients, float(1.0 / totals[-1]))
        return totals

    def _backward_part(self, loss: Tensor, *, last: bool) -> None:
        if last or not is_active():
            self.manual_backward(loss)
        else:
            with self.trainer.strategy.model.no_sync():  # type: ignore[union-attr, operator]
                self.manual_backward(loss)

    def _forward(self, step: Step, number: int) -> tuple[Tensor, Tensor]:
        """The summed loss of this process's share, and the totals of all processes, known to be finite."""
        generator = self.seed_step(number)
        try:
            loss, totals = self.measure(step.shares[number], generator)
        except NonFiniteError:  # the core refuses to go on; the other processes have to stop, too
            loss = totals = torch.full((len(TOTALS),), torch.nan, device=self.device)
        totals = sum_over_ranks(totals)
        self._check(totals, step)
        return loss, totals

    def measure(self, share: Share, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The summed (not averaged) loss of a share with its graph, and its totals without one."""
        assert self.phase is not None
        objective = self.phase.objective
        problem = self.model.problem(share.batch, with_posterior=objective.needs_posterior)
        bound = objective(problem, generator=generator)
        weights = problem.weights.to(bound.surrogate.dtype) * float(share.counts)  # [B,T]
        lost = -bound.surrogate if problem.penalty is None else problem.penalty - bound.surrogate  # [B,T]
        loss = _weighted_sum(lost, weights)
        with torch.no_grad():
            # the reported loss is the bound's value: a surrogate's own value need not mean anything
            value = -bound.value if problem.penalty is None else problem.penalty - bound.value
            entropy = bound.diagnostics.get("prior_entropy", torch.zeros_like(bound.value))
            parts = (value, bound.value, bound.log_likelihood, bound.kl, entropy)
            totals = torch.stack([*(_weighted_sum(part, weights) for part in parts), weights.sum()]).float()
            totals[0] = totals[0] + 0.0 * loss.detach()  # a surrogate that is not finite shows in the loss
        return loss, totals

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def _clip(self, step: Step) -> None:
        """Scale the gradients of θ and of φ down to their largest norm, each by itself: φ must not slow θ down.

        A norm that is not finite ends the run.
        """
        limit, norms = self.training_config.gradient_clip, []
        for parameters in self._parts:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if not gradients:
                continue
            norm = float(torch.nn.utils.get_total_norm(gradients))
            if not norm < float("inf"):  # NaN compares false
                raise NonFinite(self.step + 1, step.examples, explain_gradients(self))
            norms.append(norm)
            if 0 < limit < norm:
                torch._foreach_mul_(gradients, limit / (norm + 1e-6))
        self.gradient_norm = math.hypot(*norms)

    def _check(self, totals: Tensor, step: Step) -> None:
        if not bool(torch.isfinite(totals).all()):
            # the totals are everybody's, so every process comes here; the first that knows why explains
            causes = [cause for cause in gather(explain_step(self, step)) if cause is not None]
            unknown = "no tensor of the model is to blame; the bound itself is not finite"
            raise NonFinite(
                self.step + 1, step.examples, f"the loss is not finite: {causes[0] if causes else unknown}"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["place"] = {"epoch": self.place.epoch, "index": self.place.index, "step": self.step}
        checkpoint["place"]["position"] = self.position
        # lightning's own counters are not kept: the stream starts where the place says, in a fresh loop
        checkpoint.pop("loops", None)
        checkpoint["epoch"], checkpoint["global_step"] = self.place.epoch, self.step

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        place = checkpoint["place"]
        self.place = Place(place["epoch"], place["index"])
        self.step, self.position = place["step"], place["position"]
        self.stream.start = self.place

    def outputs_since(self) -> float:
        """Outputs since the totals were taken."""
        return 0.0 if self.totals is None else float(self.totals[-1])

    def take_totals(self) -> dict[str, float]:
        """Averages since the last call, and the number of outputs; {} if there was no step."""
        if self.totals is None:
            return {}
        *sums, outputs = self.totals.tolist()
        self.totals = None
        averages = {name: value / max(outputs, 1.0) for name, value in zip(TOTALS, sums, strict=False)}
        return {**averages, "outputs": outputs}


def _groups(name: str, parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameters for the optimiser; matrices apart from the rest if only they decay."""
    if not weight_decay:
        parts = [(name, parameters, 0.0)]
    else:
        vectors = [parameter for parameter in parameters if parameter.dim() < 2]
        matrices = [parameter for parameter in parameters if parameter.dim() >= 2]
        parts = [(name, matrices, weight_decay), (f"{name} without decay", vectors, 0.0)]
    return [
        {"name": part, "params": members, "weight_decay": decay} for part, members, decay in parts if members
    ]


def _weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Σ w·v where w = 0 wins over whatever v is there."""
    return torch.where(weights > 0, values * weights, torch.zeros_like(values)).sum()
