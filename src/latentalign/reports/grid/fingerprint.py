"""When two recipes train the same weights: a hash of what training depends on."""

import hashlib
import json
from pathlib import Path

from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.run.forking import past

# settings of `training` that change how a run is done, not what comes out of it
WITHOUT_EFFECT = {
    "epochs", "inference", "checkpoint", "log_every", "threads", "accelerator", "devices", "nodes", "strategy",
    "timeout_minutes", "deterministic",
}  # fmt: skip


def fingerprint(recipe: Recipe, *, until: float | None = None) -> str:
    """Equal for two recipes by which training comes to the same weights (until a position in epochs)."""
    values = recipe.resolved()
    schedule = schedule_of(recipe)
    data = dict(values["data"])
    if "folder" in data:
        data["folder"] = str(Path(data["folder"]).resolve())
    settings = recipe.training.with_fixed_decay(schedule.total).model_dump(mode="json")
    training = {key: value for key, value in settings.items() if key not in WITHOUT_EFFECT}
    content = {
        **{key: values[key] for key in ("task", "seed", "model")},
        "data": data,
        "training": training,
        "past": past(schedule, schedule.total if until is None else until),
        "posterior": schedule.needs_posterior,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
