"""Errors of the core. Each message names the argument, what was expected, what came and what to try."""


class ConfigError(ValueError):
    """A choice that does not exist or does not fit the others."""


class ShapeError(ValueError):
    """A tensor whose shape does not fit its neighbours."""


class NonFiniteError(ValueError, ArithmeticError):
    """A tensor with NaN or infinite values where numbers are needed."""


class NoOutputValues(ConfigError):
    """A question about every output value of a likelihood that has no finite set of them."""

    def __init__(self, likelihood: str) -> None:
        super().__init__(
            f"likelihood: {likelihood} has no finite set of output values to predict over; ask for the "
            "log_likelihood of observed outputs instead"
        )
