"""Where the time of a training step goes, operator by operator."""

from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.translation.setting import Setting, note

SHOWN = 12


def run(setting: Setting) -> dict[str, Any]:
    """Shares of the operators with the most time of their own, for soft and for the pruned marginal."""
    batches = setting.batches(setting.options.batches)
    steps = {"soft": ("soft", "soft"), "marginal, pruned": ("wake", setting.objective("-marginal"))}
    found = {}
    for name, (state, objective) in steps.items():
        note(f"profile of {name}")
        loop = setting.loop(state, objective)
        loop.step(batches[0])
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            for batch in batches:
                loop.step(batch)
        found[name] = largest([(event.key, event.self_cpu_time_total) for event in recorded.key_averages()])
    return found


def largest(times: list[tuple[str, float]], shown: int = SHOWN) -> list[dict[str, Any]]:
    """The largest shares, and the rest together."""
    total = sum(time for _, time in times)
    ordered = sorted(times, key=lambda item: -item[1])
    rows = [{"operator": name, "share": time / total} for name, time in ordered[:shown]]
    return [*rows, {"operator": "all others", "share": sum(time for _, time in ordered[shown:]) / total}]
