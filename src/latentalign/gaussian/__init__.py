"""Gaussian latents: the auto-encoding bound on handwritten digits, with wake-sleep beside it."""

from latentalign.extras import require

require("tasks", purpose="the task gaussian")
