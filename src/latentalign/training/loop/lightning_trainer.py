"""Lightning's trainer, set up for our module: its loop, loggers, precision and processes; its noise turned off."""

import functools
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from latentalign.errors import UserError
from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.stream import Step
from latentalign.training.recipe.sections import TrainingConfig
from latentalign.training.run.checkpoints import VerifiedCheckpoints
from latentalign.training.run.folders import LOGS
from latentalign.training.run.processes import World, any_rank, started_by_torchrun

# more of them only wait for each other; a hundred thousand threads end the process without a word
_MOST_THREADS, _MOST_PROCESSES = 16, 8  # for each core

_KNOWN_WARNINGS: list[tuple[str, type[Warning]]] = [
    (r".*LeafSpec.*", FutureWarning),  # lightning uses a name that torch renames
]


def build_trainer(
    config: TrainingConfig, folder: Path, *, world: World, callbacks: list[Callback]
) -> Trainer:
    """A trainer whose one epoch is the whole stream: our stream knows about epochs, and can start anywhere."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    devices, nodes = config.devices, config.nodes
    if started_by_torchrun():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = world.size // devices
    if config.deterministic:
        # filling memory that is never read would cost time
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    with quiet():
        return Trainer(
            default_root_dir=folder,
            accelerator=_accelerator(config),
            devices=devices,
            num_nodes=nodes,
            strategy=_strategy(config, world),
            precision=_precision(config),
            deterministic=config.deterministic,
            max_epochs=1,
            callbacks=callbacks,
            logger=_loggers(folder),
            plugins=[VerifiedCheckpoints()],
            limit_val_batches=0,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what lightning says about its own affairs; warnings from anywhere else still come through."""
    with warnings.catch_warnings():
        for message, category in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message, category=category)
        yield


def _loggers(folder: Path) -> list[Any]:
    """TensorBoard and CSV; every session of a run gets a version of its own."""
    return [
        TensorBoardLogger(folder / LOGS, name="tensorboard", default_hp_metric=False),
        CSVLogger(folder / LOGS, name="csv", flush_logs_every_n_steps=10),
    ]


def _strategy(config: TrainingConfig, world: World) -> Any:
    if world.size == 1:
        return "auto"
    return DDPStrategy(timeout=timedelta(minutes=config.timeout_minutes))


def wrap_again(trainer: Trainer, module: AlignmentModule, step: Step) -> None:
    """Several processes: tell DDP that other parameters are trained now.

    DDP looks at what needs a gradient when it is made, and would wait for ever for that of a frozen parameter. Asking
    it to look for unused ones in every step costs time, so it is asked to only where a trial step leaves some out.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, DDPStrategy):
        return
    (unused,) = any_rank((module.leaves_out_parameters(step),), module.device)
    devices = strategy.determine_ddp_device_ids()
    strategy.model = DistributedDataParallel(module, device_ids=devices, find_unused_parameters=unused)


def check_machine(config: TrainingConfig) -> None:
    """Refuse what this machine cannot do, before anything is read or written."""
    accelerator = _accelerator(config)
    _precision(config)
    cores = os.cpu_count() or 1
    if config.threads is not None and config.threads > _MOST_THREADS * cores:
        raise UserError(
            f"training.threads: expected at most {_MOST_THREADS * cores} on {cores} cores, received {config.threads}"
        )
    places = torch.cuda.device_count() if accelerator == "gpu" else _MOST_PROCESSES * cores
    if config.devices > places and not started_by_torchrun():
        found = f"{places} GPUs" if accelerator == "gpu" else f"{cores} cores"
        raise UserError(f"training.devices: expected at most {places} on {found}, received {config.devices}")
    if config.nodes > 1 and not started_by_torchrun() and not {"NODE_RANK", "MASTER_ADDR"} <= set(os.environ):
        raise UserError(
            f"training.nodes: {config.nodes} machines have to be started together: use torchrun on each of them, or "
            "set NODE_RANK, MASTER_ADDR and MASTER_PORT there (see docs/training.md)"
        )


@contextmanager
def precision_of(config: TrainingConfig) -> Iterator[None]:
    """Compute as training does, without lightning."""
    with supported(config):
        if config.precision == 32:
            yield
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                yield


@contextmanager
def supported(config: TrainingConfig, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Work around what this processor's libraries cannot compute, and say so."""
    if config.precision == 32 or _accelerator(config) != "cpu" or _has_bf16_lstm():
        yield
        return
    say("training.precision: this processor has no bf16 LSTM (that takes AVX-512); LSTMs compute in 32 bits")
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # then torch computes LSTMs by itself
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@functools.cache
def _has_bf16_lstm() -> bool:
    """Whether oneDNN can compute an LSTM in bf16 here; it has no such code for processors without AVX-512."""
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.zeros(1, 1, 2))
    except RuntimeError:
        return False
    return True


def _accelerator(config: TrainingConfig) -> str:
    """`auto` is CUDA or the CPU: other back ends lack the double precision that evaluation sums in."""
    if config.accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError("training.accelerator: no GPU was found; use auto or cpu")
    return "gpu" if config.accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def _precision(config: TrainingConfig) -> Any:
    if config.precision == 32:
        return "32-true"
    # CPUs without it compute bf16 in a roundabout way: right, but slower than 32 bits
    if _accelerator(config) == "gpu" and not torch.cuda.is_bf16_supported():
        raise UserError("training.precision: this GPU has no bf16; use 32")
    return "bf16-mixed"
