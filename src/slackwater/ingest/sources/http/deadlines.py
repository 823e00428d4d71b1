"""Deadlines of whole HTTP requests.

The timeouts of httpx apply to each read: a server that sends one byte at a time, in the headers or in the
body, never exceeds them. At its deadline the socket of a request is shut down, which ends the read that waits
for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

Trace = Callable[[str, Mapping[str, Any]], None]
"""Receives the steps of a request, as the extension ``trace`` of httpx."""


class Deadline:
    """Limits requests that are sent one at a time.

    >>> deadline = Deadline()
    >>> with deadline.of(60) as trace:
    ...     trace("connection.connect_tcp.started", {})
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    @contextmanager
    def of(self, seconds: float) -> Iterator[Trace]:
        """Limit what happens in the block; pass the value as the extension ``trace`` of the request.

        Raises:
            httpx.ReadTimeout: The block took longer.
        """
        passed = threading.Event()

        def end() -> None:
            with self._lock:
                passed.set()
                self._shut_down()

        def trace(step: str, details: Mapping[str, Any]) -> None:
            if step.endswith((".connect_tcp.complete", ".start_tls.complete")):
                with self._lock:
                    self._socket = details["return_value"].get_extra_info("socket")
                    if passed.is_set():
                        self._shut_down()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield trace
        except Exception:
            if passed.is_set():
                raise httpx.ReadTimeout("the request took too long") from None
            raise
        finally:
            timer.cancel()
        if passed.is_set():  # a body whose length is not declared ends like a complete one
            raise httpx.ReadTimeout("the request took too long")

    def _shut_down(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
