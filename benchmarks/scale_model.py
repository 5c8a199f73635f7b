"""A model of training WMT-17 on several devices: what is assumed, and what follows from measured step times."""

import bisect
from dataclasses import dataclass
from typing import Any

DEVICES = (1, 8, 64)
WORTHWHILE = 0.8  # of a step spent computing


@dataclass(frozen=True)
class Assumptions:
    """What is not measured here."""

    pairs: int = 4_500_000
    target_tokens_a_pair: float = 29.0  # 32k joint BPE, end of sentence included
    epochs: int = 10
    vocabulary: int = 32_000
    length: int = 29  # of source and target in the measured batches
    gpu_tflops: float = 12.0  # sustained in LSTM training, fp32/TF32, of a data-centre GPU
    # seconds a decoder position takes at least, both ways: some 50 kernels of 8 µs
    gpu_position: float = 4e-4
    overlap: float = 0.5  # of the all-reduce that hides behind the backward pass
    latency: float = 30e-6  # seconds a message


@dataclass(frozen=True)
class Network:
    """A link between devices."""

    name: str
    gigabytes: float  # a second, in each direction


NETWORKS = (
    Network("1 Gbit/s Ethernet", 0.118),
    Network("10 Gbit/s Ethernet", 1.18),
    Network("100 Gbit/s InfiniBand", 11.8),
    Network("NVLink within a machine", 150.0),
)


def all_reduce_seconds(
    count: int, devices: int, network: Network, assumptions: Assumptions, size: int = 4
) -> float:
    """A ring: every device sends 2 (n−1)/n of the message in 2 (n−1) pieces."""
    if devices == 1:
        return 0.0
    share = 2 * (devices - 1) / devices
    return share * count * size / (network.gigabytes * 1e9) + 2 * (devices - 1) * assumptions.latency


def step_model(
    measured: dict[str, Any],
    tokens: float,
    devices: int,
    network: Network,
    assumptions: Assumptions,
    device: str,
) -> dict[str, float]:
    """Seconds of a step whose global batch has that many target tokens."""
    share = tokens / devices
    if device == "cpu":
        compute = measured["seconds_fixed"] + measured["seconds_a_token"] * share
    else:  # 2 operations a multiply-add; the backward pass costs twice the forward pass
        arithmetic = 6 * measured["multiply_adds_a_token"] * share / (assumptions.gpu_tflops * 1e12)
        # input feeding decodes position by position, and small batches do not fill a GPU
        compute = max(arithmetic, assumptions.length * assumptions.gpu_position)
    reduce = all_reduce_seconds(measured["parameters"], devices, network, assumptions)
    visible = max(reduce - assumptions.overlap * compute, reduce * (1 - assumptions.overlap))
    return {"compute": compute, "reduce": reduce, "step": compute + visible}


def days(seconds_a_step: float, tokens: float, assumptions: Assumptions) -> float:
    """Of the whole training."""
    steps = assumptions.epochs * assumptions.pairs * assumptions.target_tokens_a_pair / tokens
    return steps * seconds_a_step / 86_400


def batch_for(
    measured: dict[str, Any], devices: int, network: Network, assumptions: Assumptions, device: str
) -> int:
    """The smallest global batch, in target tokens, whose steps spend `WORTHWHILE` of their time computing."""

    def is_enough(hundreds: int) -> bool:
        parts = step_model(measured, 100 * hundreds, devices, network, assumptions, device)
        return parts["compute"] >= WORTHWHILE * parts["step"]

    return 100 * bisect.bisect_left(range(10**7), True, lo=1, key=is_enough)


def time_table(measured: dict[str, Any], device: str, tokens: int, assumptions: Assumptions) -> list[str]:
    """Time of the whole training by network and number of devices."""
    names = {
        "cpu": "one core of this machine",
        "gpu": f"a GPU ({assumptions.gpu_tflops:g} TFLOP/s sustained)",
    }
    lines = [
        "",
        f"Each device {names[device]}; global batch {tokens:,} target tokens:",
        "",
        "| network | " + " | ".join(f"{n} device{'s' * (n > 1)}" for n in DEVICES) + " |",
        "|---|" + "---|" * len(DEVICES),
    ]
    for network in NETWORKS:
        cells = []
        for devices in DEVICES:
            parts = step_model(measured, tokens, devices, network, assumptions, device)
            whole = days(parts["step"], tokens, assumptions)
            computing = 100 * parts["compute"] / parts["step"]
            cells.append(_time(whole) + (f", {computing:.0f} % computing" if devices > 1 else ""))
        lines.append(f"| {network.name} | " + " | ".join(cells) + " |")
    return lines


def tables(figures: dict[str, Any], assumptions: Assumptions) -> str:
    """The tables of docs/scale.md."""
    measured = figures["steps"]["variational"]
    lines = []
    for device, tokens in (("cpu", 3_000), ("gpu", 3_000), ("gpu", 24_000)):
        lines += time_table(measured, device, tokens, assumptions)
    lines += [
        "",
        f"Global batch, in target tokens, from which computing takes {100 * WORTHWHILE:.0f} % of the time:",
        "",
        "| network | 8 cores | 64 cores | 8 GPUs | 64 GPUs |",
        "|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        cells = [
            f"{batch_for(measured, devices, network, assumptions, device):,}"
            for device in ("cpu", "gpu")
            for devices in DEVICES[1:]
        ]
        lines.append(f"| {network.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _time(value: float) -> str:
    return (
        f"{value:,.0f} days" if value >= 10 else f"{value:.1f} days" if value >= 1 else f"{24 * value:.1f} h"
    )
