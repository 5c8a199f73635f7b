"""Several processes: which one this is, and what they sum up and agree on."""

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

_MESSAGE = "LATENTALIGN_FIRST_PROCESS_SAYS"


@dataclass(frozen=True)
class World:
    """This process among the others of the run."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def started_by_torchrun() -> bool:
    """Whether torchrun (torch elastic) started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "WORLD_SIZE" in os.environ


def started_by_lightning() -> bool:
    """Whether lightning's launcher started this process as a further rank of a run."""
    return not started_by_torchrun() and int(os.environ.get("LOCAL_RANK", "0")) > 0


def find_world(devices: int = 1, nodes: int = 1) -> World:
    """Rank and number of processes, from the launcher's variables or the recipe, before any of them talk."""
    if started_by_torchrun():
        return World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    node, local = int(os.environ.get("NODE_RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    return World(node * devices + local, devices * nodes)


def is_active() -> bool:
    """Whether there is a group of more than one process to talk to."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in place."""
    if is_active():
        distributed.all_reduce(values)
    return values


def any_rank(flags: tuple[bool, ...], device: torch.device) -> tuple[bool, ...]:
    """For each flag, whether it is set on any process; every process must ask."""
    if not is_active():
        return flags
    values = torch.tensor(flags, dtype=torch.float32, device=device)
    distributed.all_reduce(values, op=distributed.ReduceOp.MAX)
    return tuple(value > 0 for value in values.tolist())


def gather(value: Any) -> list[Any]:
    """The value of every process, in the order of their ranks."""
    if not is_active():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def open_group(timeout_minutes: float) -> None:
    """Connect the processes that torchrun started, before the first of them makes the run folder."""
    if started_by_torchrun() and not distributed.is_initialized() and int(os.environ["WORLD_SIZE"]) > 1:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(minutes=timeout_minutes))


def close_group() -> None:
    """Disconnect."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def agree(value: Any) -> Any:
    """What the first process says, on every process.

    Lightning starts the other processes after the first has said it: they find it in their environment.
    """
    if is_active():
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]
    if started_by_lightning():
        return json.loads(os.environ[_MESSAGE])
    os.environ[_MESSAGE] = json.dumps(value)
    return value
