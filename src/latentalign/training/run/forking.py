"""Fork a run: another future for the same past, so that many runs can share one warm-up."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.schedule import Schedule, schedule_of
from latentalign.training.recipe.sections import PhaseConfig
from latentalign.training.run.checkpoints import FOLDER as CHECKPOINTS
from latentalign.training.run.checkpoints import VerifiedCheckpoints, checkpoint_path, newest_good
from latentalign.training.run.config_file import load_config, save_config
from latentalign.training.run.folders import LOGS


def fork_run(
    source: str | Path,
    to: str | Path,
    *,
    schedule: Sequence[PhaseConfig | Mapping[str, Any]],
    epochs: float | None = None,
) -> Recipe:
    """Copy a run as it is at its newest checkpoint into a folder that goes on by another schedule.

    The new schedule must begin with the phases that the source has been through. Data order, dropout and samples
    depend on the seed and the step alone, so `latentalign train --resume TO` then equals training by that schedule
    from the start. (A source that ends within an epoch was measured there once more, which may have lowered its
    learning rate: end a warm-up with an epoch.) The inference network cannot appear or vanish half-way: a run whose
    forks need one has it from the start if its schedule names a later phase that uses it, reached or not. Gives the
    recipe of the fork.
    """
    source, to = Path(source), Path(to)
    before = load_config(source)
    good = newest_good(source, lambda text: None)
    if good is None:
        raise UserError(f"{source}: no good checkpoint to fork from; train the run first")
    _, content = good
    recipe = _with_schedule(before, schedule, epochs, place=f"fork of {source}")
    _check_past(schedule_of(before), schedule_of(recipe), content["place"], source)
    _check_rates(before, recipe, source)
    if to.exists() and (to.is_file() or any(to.iterdir())):
        raise UserError(f"{to}: the folder exists; a run is forked into a folder of its own")
    to.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}.", suffix=".part"))
    try:
        shutil.copytree(source, draft, dirs_exist_ok=True, ignore=_leave_out)
        save_config(recipe, draft)
        # how the source predicts at validation fits its own last objective; the fork chooses anew
        content["inference"] = None
        VerifiedCheckpoints().save_checkpoint(content, checkpoint_path(draft, content["place"]["step"]))
        draft.chmod(0o755)
        if to.is_dir():
            to.rmdir()
        draft.rename(to)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return recipe


def _leave_out(folder: str, names: list[str]) -> set[str]:
    """Logs of the source's sessions, and checkpoints: the newest one is written anew."""
    return {name for name in names if name in (CHECKPOINTS, LOGS) or name.startswith(".")}


def _with_schedule(
    before: Recipe,
    schedule: Sequence[PhaseConfig | Mapping[str, Any]],
    epochs: float | None,
    *,
    place: str,
) -> Recipe:
    values = before.resolved()
    values["schedule"] = [
        phase.model_dump(mode="json") if isinstance(phase, PhaseConfig) else dict(phase) for phase in schedule
    ]
    if epochs is not None:
        values["training"] = {**values["training"], "epochs": epochs}
    return build_recipe(values, place=place)


def _check_past(old: Schedule, new: Schedule, place: Mapping[str, Any], source: Path) -> None:
    """Refuse a schedule by which the source could not have come to where it is."""
    position, step = place["position"], place["step"]
    # a step belongs to the phase it begins in: the last one may have run over the end of its phase
    begun = position * (step - 1) / step
    if past(old, begun) != past(new, begun):
        raise UserError(
            f"{source}: expected a schedule that begins with {_spell(old, position)}, "
            f"received {_spell(new, position)}; a fork shares the past of its source"
        )
    if old.needs_posterior != new.needs_posterior:
        has, would = ("an", "none") if old.needs_posterior else ("no", "one")
        raise UserError(
            f"{source}: the run has {has} inference network, the fork would have {would}; end either schedule "
            "with a phase such as wake, which need not be reached"
        )
    if _states(old) != _states(new):
        raise UserError(
            f"{source}: the fork's objectives keep other running means than the checkpoint has; use a baseline "
            "without a state, or train by this schedule from the start"
        )


def _check_rates(old: Recipe, new: Recipe, source: Path) -> None:
    """Refuse a length of training by which the rates of the past would have been others."""
    lengths = [schedule_of(recipe).total for recipe in (old, new)]
    decays = [
        recipe.training.with_fixed_decay(total).decay
        for recipe, total in zip((old, new), lengths, strict=True)
    ]
    if decays[0] != decays[1]:
        raise UserError(
            f"{source}: its rate falls over all of its {lengths[0]:g} epochs, the fork would have {lengths[1]:g}; "
            f"train the source with training.decay={{name: cosine, epochs: {lengths[1]:g}}}, or fork it to "
            f"{lengths[0]:g} epochs"
        )


def past(schedule: Schedule, position: float) -> list[tuple[str, bool, bool, float]]:
    """What a schedule does until a position in epochs; two schedules with the same past train alike until there."""
    return [
        (repr(phase.objective), phase.trains_theta, phase.trains_phi, min(phase.end, position))
        for phase in schedule.phases
        if phase.start < position - 1e-9
    ]


def _spell(schedule: Schedule, position: float) -> str:
    phases = [phase for phase in schedule.phases if phase.start < position - 1e-9]
    return ", ".join(f"{phase.name} until epoch {min(phase.end, position):g}" for phase in phases)


def _states(schedule: Schedule) -> list[str]:
    return [type(part).__name__ for phase in schedule.phases for part in phase.objective.modules()]
