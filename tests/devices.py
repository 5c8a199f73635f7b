"""A device that nobody has: it claims to be another one, computes on the CPU and refuses to mix with it.

Code that forgets a `device=` runs on the CPU and fails on a GPU. Within `elsewhere()` it fails here as well:

    with elsewhere() as device:
        model = model.to(device)
        loss = model(batch.to(device))
        loss.backward()
        assert at_home(loss).isfinite()

Tensors there have `device.type == "meta"`, since torch lets every part of it (autograd, checkpoint, autocast, modules)
be asked about that device without any hardware; but they hold numbers. An operation raises `Mixed` if it gets
tensors of both places, as it would with a GPU; numbers and tensors without axes may come from anywhere, and `to`,
`cpu` and `copy_` go from one to the other. A random generator has to be made there: `torch.Generator(device=device)`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
# these go from one place to the other
_MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
# (operation, argument): torch wants the lengths of packed sequences on the CPU, wherever the sequences are
_ON_CPU = {
    torch.ops.aten._pack_padded_sequence.default: 1,
    torch.ops.aten._pad_packed_sequence.default: 1,
    torch.ops.aten._pack_padded_sequence_backward.default: 2,
}


class Mixed(AssertionError):
    """An operation got tensors of two devices."""


class Elsewhere(Tensor):
    """A tensor of the other device; `home` has its numbers."""

    home: Tensor

    @staticmethod
    def __new__(cls, home: Tensor) -> "Elsewhere":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            home.shape,
            strides=home.stride(),
            storage_offset=home.storage_offset(),
            dtype=home.dtype,
            device=DEVICE,
        )
        made.home = home
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.home!r})"

    # torch reads these from memory, where the others know of none
    def tolist(self) -> Any:
        return self.home.tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Elsewhere":
        copied = Elsewhere(self.home.detach().clone()).requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied


_CpuGenerator = torch.Generator


class _Generator(_CpuGenerator):
    """A generator of either device. Operations get it in another wrapping: it is known by its address."""

    elsewhere: set[int] = set()  # noqa: RUF012

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        made = super().__new__(cls)
        if torch.device(device).type == DEVICE.type:
            cls.elsewhere.add(made._cdata)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    def __del__(self) -> None:
        self.elsewhere.discard(self._cdata)

    @property
    def device(self) -> torch.device:
        return DEVICE if self._cdata in self.elsewhere else torch.device("cpu")


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func in _ON_CPU:
        return _run_packed(func, args)
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    foreign = [leaf for leaf in leaves if isinstance(leaf, Elsewhere)]
    device = kwargs.get("device")
    made_there = device is not None and torch.device(device).type == DEVICE.type
    there = made_there or (bool(foreign) and device is None)
    if func not in _MOVES and foreign:
        for leaf in leaves:
            if not isinstance(leaf, Elsewhere) and leaf.dim() > 0:
                raise Mixed(
                    f"{func}: tensors of {[(list(leaf.shape), leaf.device.type) for leaf in leaves]} do not go together"
                )
    if there:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, _CpuGenerator) and leaf._cdata not in _Generator.elsewhere:
                raise Mixed(f"{func}: a generator of the CPU does not serve another device")
    if func is torch.ops.aten.copy_.default:
        there = isinstance(args[0], Elsewhere)
    # what is changed in place or written into comes back as itself
    known = {id(leaf.home): leaf for leaf in foreign}
    if made_there:
        kwargs = {**kwargs, "device": torch.device("cpu")}

    def unwrap(leaf: Any) -> Any:
        return leaf.home if isinstance(leaf, Elsewhere) else leaf

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or isinstance(leaf, Elsewhere):
            return leaf
        return known.get(id(leaf)) if id(leaf) in known else Elsewhere(leaf)

    result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))
    return tree_map(wrap, result) if there else result


def _run_packed(func: Any, args: tuple[Any, ...]) -> Any:
    """Sequences of either device with lengths of the CPU; the lengths that come back are there, too."""
    lengths = args[_ON_CPU[func]]
    if isinstance(lengths, Elsewhere):
        raise Mixed(f"{func}: the lengths of packed sequences belong on the CPU")
    there = any(isinstance(arg, Elsewhere) for arg in args)
    result = func(*(arg.home if isinstance(arg, Elsewhere) else arg for arg in args))
    if not there:
        return result
    if isinstance(result, Tensor):
        return Elsewhere(result)
    return Elsewhere(result[0]), result[1]


class _Everything(TorchDispatchMode):
    """Sees what no argument of an operation would tell: factories with `device=`."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


@contextmanager
def elsewhere() -> Iterator[torch.device]:
    """While this is open, tensors and generators can be made on the other device."""
    with pytest.MonkeyPatch.context() as patch, _Everything():
        patch.setattr(torch, "Generator", _Generator)
        for name in ("tensor", "as_tensor"):
            patch.setattr(torch, name, _from_numbers(getattr(torch, name)))
        patch.setattr(Elsewhere, "new_tensor", _new_tensor)
        yield DEVICE


def _from_numbers(build: Any) -> Any:
    """torch makes nothing of numbers on this device: build them on the CPU and move them."""

    def moved(data: Any, *args: Any, device: Any = None, **options: Any) -> Tensor:
        if device is None or isinstance(data, Elsewhere):
            return build(data, *args, device=device, **options)
        return build(data, *args, **options).to(device)

    return moved


def _new_tensor(
    self: Elsewhere, data: Any, *, dtype: Any = None, device: Any = None, **options: Any
) -> Tensor:
    return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **options)


def at_home(value: Any) -> Any:
    """The same numbers on the CPU, without a graph; in any nest of tensors."""
    return tree_map(lambda leaf: leaf.home.detach() if isinstance(leaf, Elsewhere) else leaf, value)


class Largest(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.made_by = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            # an expanded view has no memory of its own
            if isinstance(leaf, Tensor) and leaf.numel() > self.elements and 0 not in leaf.stride():
                self.elements, self.made_by = leaf.numel(), f"{func} {list(leaf.shape)}"
        return result
