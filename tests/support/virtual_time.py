"""An event loop whose clock jumps to the next timer instead of waiting: tests of waiting never wait."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


class _Jumping(selectors.DefaultSelector):
    """A selector that does not sleep, but tells its loop how long it would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.slept += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time is the sum of what was waited for."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.slept


def run(main: Coroutine[Any, Any, Outcome]) -> tuple[Outcome, float]:
    """The result of ``main`` and how many virtual seconds it took."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        result = runner.run(main)
        return result, runner.get_loop().time()
