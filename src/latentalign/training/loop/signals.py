"""SIGTERM and SIGINT while training: remembered until a step is complete."""

import signal
import threading
import time
from types import FrameType
from typing import Any


class Signals:
    """Remembers SIGTERM and SIGINT until a step is complete; a second SIGINT, later on, does not wait."""

    # torchrun passes a Ctrl-C on that its processes got from the terminal already: that is no second one
    PATIENCE = 1.0

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._when = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Take the signals; may be called again after other code took them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def restore(self) -> None:
        """Put the first handlers back."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        again = self.received is not None and now - self._when > self.PATIENCE
        if self.received is None:
            self.received, self._when = signal.Signals(number), now
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt
