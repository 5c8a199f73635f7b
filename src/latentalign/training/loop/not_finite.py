"""When the loss is not finite: which tensor went wrong first. Nothing is patched over."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from latentalign.training.loop.module import AlignmentModule
    from latentalign.training.loop.stream import Step


def explain_step(module: "AlignmentModule", step: "Step") -> str | None:
    """Repeat the forward pass with the same random numbers and name the first tensor that is not finite, if any."""
    for name, parameter in module.model.named_parameters():
        if bad := _first_bad(parameter):
            return f"weight {name} {bad}"
    for number, share in enumerate(step.shares):
        if bad := _first_bad(share.batch):
            return f"the batch itself {bad}"
        if cause := _repeat(module, step, number):
            return cause
    return None


def explain_gradients(module: "AlignmentModule") -> str:
    """Name the first parameter whose gradient is not finite."""
    for name, parameter in module.model.named_parameters():
        if parameter.grad is not None and (bad := _first_bad(parameter.grad)):
            return f"the gradient is not finite: that of {name} {bad}"
    return "the norm of the gradient is not finite though each gradient is: the loss has grown too large"


def _repeat(module: "AlignmentModule", step: "Step", number: int) -> str | None:
    assert module.phase is not None
    objective = module.phase.objective
    found: list[str] = []
    handles = [
        part.register_forward_hook(_hook(name, found)) for name, part in module.model.named_modules() if name
    ]
    try:
        generator = module.seed_step(number)
        with torch.no_grad():
            problem = module.model.problem(
                step.shares[number].batch, with_posterior=objective.needs_posterior
            )
            found.extend(_bad_parts(problem))
            if not found:
                bound = objective(problem, generator=generator)
                found.extend(_bad_parts(bound))
    except (ValueError, RuntimeError) as error:
        # the core refuses tensors that are not finite; the module that made them was seen before
        found.append(str(error).splitlines()[0])
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _hook(name: str, found: list[str]) -> Any:
    def check_output(part: nn.Module, inputs: Any, output: Any) -> None:
        if not found and (bad := _first_bad(output)):
            found.append(f"output of {name} ({type(part).__name__}) {bad}")

    return check_output


def _bad_parts(record: Any) -> list[str]:
    """Tensors of a problem or bound that are not finite, by name; −inf is a proper log-probability."""
    kind = type(record).__name__
    found = []
    for name, value in vars(record).items():
        if isinstance(value, Tensor) and (bad := _first_bad(value)):
            found.append(f"{kind}.{name} {bad}")
        elif name in ("prior", "posterior") and value is not None:
            for inner, tensor in vars(value).items():
                if (
                    isinstance(tensor, Tensor)
                    and tensor.is_floating_point()
                    and bool(torch.isnan(tensor).any())
                ):
                    found.append(
                        f"{name}.{inner} has {int(torch.isnan(tensor).sum())} NaN of {tensor.numel()}"
                    )
    return found


def _first_bad(value: Any) -> str | None:
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return None
        wrong = ~torch.isfinite(value.detach())
        count = int(wrong.sum())
        if not count:
            return None
        kind = "NaN" if bool(torch.isnan(value.detach()).any()) else "infinite"
        return f"has {count} of {value.numel()} values {kind}, shape {list(value.shape)}"
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    elif hasattr(value, "__dataclass_fields__"):
        parts = [getattr(value, name) for name in value.__dataclass_fields__]
    else:
        return None
    return next((bad for part in parts if (bad := _first_bad(part))), None)
