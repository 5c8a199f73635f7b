"""Gaussian latents: the auto-encoding bound on handwritten digits, with wake-sleep beside it."""
