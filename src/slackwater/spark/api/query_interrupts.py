"""Ctrl-C while the main thread waits for a query."""

from __future__ import annotations

import signal
import threading


def restore_interrupts() -> None:
    """Install the current handler of SIGINT again, so that Ctrl-C interrupts calls that wait for Spark.

    The first import of Polars wraps the handler in one that restarts interrupted system calls. Python then
    runs the handler only when the call returns: Ctrl-C in ``awaitTermination()`` has no effect.

    >>> handler = signal.getsignal(signal.SIGINT)
    >>> restore_interrupts()
    >>> signal.getsignal(signal.SIGINT) is handler
    True
    """
    handler = signal.getsignal(signal.SIGINT)
    # Handlers can only be set in the main thread; one that was not set in Python is None.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
