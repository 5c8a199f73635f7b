"""Errors of the core. Each message names the argument, what was expected, what came and what to try."""


class ConfigError(ValueError):
    """A choice that does not exist or does not fit the others."""


class ShapeError(ValueError):
    """A tensor whose shape does not fit its neighbours."""


class NonFiniteError(ValueError):
    """A tensor with NaN or infinite values where numbers are needed."""
