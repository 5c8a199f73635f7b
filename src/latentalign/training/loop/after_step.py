"""The callback that runs a training run: logs, validates, saves and stops, always in that order after a step."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from latentalign.task import Dataset
from latentalign.training.loop.evaluation import evaluate_model, natural_inference
from latentalign.training.loop.lightning_trainer import wrap_again
from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.plateau import ValidationState, monitored
from latentalign.training.loop.progress_bar import Progress
from latentalign.training.loop.rate import share_of_rate
from latentalign.training.loop.signals import Signals
from latentalign.training.loop.stream import Step
from latentalign.training.recipe.sections import TrainingConfig
from latentalign.training.run.checkpoints import checkpoint_path, prune
from latentalign.training.run.journal import Metrics, RunLog
from latentalign.training.run.processes import any_rank
from latentalign.training.run.stopping import Interrupted
from latentalign.training.run.weights import save_model


class AfterEachStep(Callback):
    """Decides after every step what is due. Its state travels in the checkpoints."""

    def __init__(
        self,
        folder: Path,
        valid: Dataset,
        *,
        config: TrainingConfig,
        say: RunLog,
        progress: Progress,
        signals: Signals,
        resume_hint: str,
    ) -> None:
        self.folder = folder
        self.valid = valid
        self.config = config
        self.say = say
        self.progress = progress
        self.signals = signals
        self.resume_hint = resume_hint
        self.metrics = Metrics(folder / "metrics.jsonl")
        self.validation = ValidationState(rate=config.learning_rate)
        self.rate = config.learning_rate  # of the newest update
        self.inference = config.inference
        self.seconds_before = 0.0  # of training, in earlier sessions
        self.tokens = 0.0
        self._started = time.perf_counter()
        self._saved_at = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training, over all sessions."""
        return self.seconds_before + time.perf_counter() - self._started

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._started = self._saved_at = time.perf_counter()
        self.signals.install()  # lightning has just taken SIGTERM for itself
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)  # a launcher may have set another number
        if self.inference is None:
            self.inference = natural_inference(pl_module.schedule, pl_module.model.example_prior())
        if trainer.is_global_zero:
            self.metrics.forget_after(pl_module.step)
        self.progress.start(pl_module.position, pl_module.schedule.total)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Step, batch_idx: int) -> None:
        if pl_module.phase is None or batch.start >= pl_module.phase.end:
            phase = pl_module.schedule.at(batch.start)
            self.say(phase.describe(pl_module.schedule.total))
            pl_module.enter(phase)
            wrap_again(trainer, pl_module, batch)
        share = share_of_rate(
            self.config, step=pl_module.step + 1, position=batch.start, total=pl_module.schedule.total
        )
        self.rate = self.validation.rate * share
        set_rate(pl_module, self.rate)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Step, batch_idx: int
    ) -> None:
        step = pl_module.step
        if step % self.config.log_every == 0 or batch.is_last:
            self._report(trainer, pl_module, batch)
        is_kept = False
        if self._validation_is_due(batch, step):
            is_kept = self._validate(trainer, pl_module, batch)
        stop = batch.is_last or trainer.should_stop
        # processes differ in clocks and signals: what one of them wants, all of them do
        signalled, late = any_rank((self.signals.received is not None, self._is_late()), pl_module.device)
        every = self.config.checkpoint.every_steps
        if stop or is_kept or signalled or late or (every is not None and step % every == 0):
            self.save(trainer, pl_module)
        if signalled and not stop:
            name = self.signals.received.name if self.signals.received else "a signal to another process"
            raise Interrupted(
                f"interrupted by {name} after step {step}; the state is saved; go on with: {self.resume_hint}"
            )

    def _validation_is_due(self, batch: Step, step: int) -> bool:
        if batch.is_last:
            return True
        if self.config.validate_every_steps is not None:
            return step % self.config.validate_every_steps == 0
        every = self.config.validate_every
        if every is None:
            return False
        return math.floor(batch.end / every + 1e-9) > math.floor(batch.start / every + 1e-9)

    def _is_late(self) -> bool:
        minutes = self.config.checkpoint.every_minutes
        return minutes is not None and time.perf_counter() - self._saved_at >= minutes * 60

    def _report(self, trainer: Trainer, module: AlignmentModule, batch: Step) -> None:
        averages = module.take_totals()
        self.tokens += averages.get("outputs", 0.0)
        values = self.progress.update(batch.end, averages, self.rate)
        values["gradient_norm"] = module.gradient_norm
        values["epoch"] = batch.end
        for logger in trainer.loggers:
            logger.log_metrics({f"train/{name}": value for name, value in values.items()}, step=module.step)

    def _validate(self, trainer: Trainer, module: AlignmentModule, batch: Step) -> bool:
        """Measure, judge, keep the weights that the run may end with; whether these are such."""
        assert module.phase is not None
        assert self.inference is not None
        results = evaluate_model(
            module.model,
            self.valid,
            self.inference,
            device=module.device,
            seed=module.seed,
            with_posterior=module.phase.needs_posterior,  # before that q is untrained, and costs an enumeration
            world=module.world,
        )
        verdict = self.validation.judge(
            results, phase=module.phase, schedule=module.schedule, step=module.step, config=self.config
        )
        if not math.isfinite(monitored(results, module.phase)):
            self.say(f"step {module.step}: validation is not finite; these weights are not kept")
        if verdict.stops:
            self.validation.stopped = trainer.should_stop = True
        record = {
            "step": module.step,
            "epoch": round(batch.end, 6),
            "phase": module.phase.name,
            "split": "valid",
            **results,
            "learning_rate": self.validation.rate if verdict.lowers_rate else self.rate,
            "best": verdict.is_best,
            "kept": verdict.is_kept,
            "training_seconds": round(self.seconds, 3),
        }
        self._tell(record, verdict.lowers_rate, verdict.stops)
        if trainer.is_global_zero:
            self.metrics.append(record)
        for logger in trainer.loggers:
            numbers = {
                f"valid/{name}": value for name, value in results.items() if isinstance(value, int | float)
            }
            logger.log_metrics(numbers, step=module.step)
            logger.save()
        if verdict.is_kept and trainer.is_global_zero:
            save_model(module.model, self.folder)
        self.progress.rest()
        return verdict.is_kept

    def _tell(self, record: dict[str, Any], lowered: bool, stops: bool) -> None:
        shown = [
            f"{name} {record[name]:.4g}"
            for name in record
            if name in ("nll", "ppl", "elbo", "kl", "prior_entropy")
            or (name not in _BOOKKEEPING and isinstance(record[name], float))
        ]
        notes = [
            "best" if record["best"] else "",
            f"learning rate lowered to {self.validation.rate:g}" if lowered else "",
            "no improvement for long enough: training ends" if stops else "",
        ]
        line = f"epoch {record['epoch']:.2f}, step {record['step']}: valid {', '.join(shown)}"
        self.say("; ".join([line, *filter(None, notes)]))

    def save(self, trainer: Trainer, module: AlignmentModule) -> None:
        """Write a checkpoint and forget the oldest; every process must call it."""
        trainer.save_checkpoint(checkpoint_path(self.folder, module.step), weights_only=False)
        self._saved_at = time.perf_counter()
        if trainer.is_global_zero:
            prune(self.folder, keep=self.config.checkpoint.keep, kept_step=self.validation.kept_step)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["learning"] = self.validation.state()
        checkpoint["clock"] = {"seconds": self.seconds, "tokens": self.tokens + pl_module.outputs_since()}
        checkpoint["inference"] = self.inference
        checkpoint["examples"] = len(pl_module.stream.dataset)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self.validation.restore(checkpoint["learning"], self.config)
        self.seconds_before = checkpoint["clock"]["seconds"]
        self.tokens = checkpoint["clock"]["tokens"]
        self.inference = self.inference or checkpoint["inference"]

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.progress.stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self.progress.stop()


_BOOKKEEPING = {"step", "epoch", "learning_rate", "training_seconds", "seconds", "tokens", "examples"}


def set_rate(module: AlignmentModule, rate: float) -> None:
    """Give every parameter group this learning rate."""
    optimizer: Any = module.optimizers()
    for group in optimizer.param_groups:
        group["lr"] = rate
