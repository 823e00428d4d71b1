"""Runs the console's web server: in the foreground for the command, in a thread for a session."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from slackwater._extras import naming_extras
from slackwater.errors import InvalidArgument
from slackwater.metadata.store import open_store
from slackwater.ui.change_feed import POLL_SECONDS
from slackwater.ui.guards import check_exposure
from slackwater.ui.views import Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7373
_LAST_PORT: Final = 65_535
_PORT_FIX: Final = "choose another port, or 0 for any free one"
_SHUTDOWN_SECONDS: Final = 2


class RunningConsole:
    """The console's server on a bound socket; `start` runs it in a thread, `run` in the foreground.

    Args:
        views: What it shows. Closed with the server.
        host: The interface to bind to.
        port: The port; 0 for any free one, None for 7373 or, if that is taken, any free one.
        token: The token that requests must carry, required unless ``host`` is a loopback address.
        cleanup: What else ends with the server.
        poll_seconds: How often the store is checked for changes while a page is open.

    Raises:
        InvalidArgument: The interface needs a token, or the port is not free.
        MissingExtra: The extra ``ui`` is not installed.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with sw.ui(spark, port=0) as console:
    ...     isinstance(console, sw.RunningConsole)
    True
    """

    def __init__(
        self,
        views: Views,
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        token: str | None = None,
        cleanup: ExitStack | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        check_exposure(host, token)
        with naming_extras():
            import uvicorn

            from slackwater.ui.server import create_app

            app = create_app(views, token=token, poll_seconds=poll_seconds)
        self._views = views
        self._cleanup = ExitStack() if cleanup is None else cleanup
        self._socket = _listening(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}/"
        """Where the console is."""
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, log_level="warning", access_log=False, ws="none", lifespan="on",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS, server_header=False,
            )
        )  # fmt: skip
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until the process is interrupted."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._release()

    def start(self) -> Self:
        """Serve in a thread until `close`, or until the process ends."""
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="slackwater ui", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the server and close its connections."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._release()

    def _release(self) -> None:
        with suppress(OSError):
            self._socket.close()
        self._views.close()
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunningConsole({self.address!r})"

    def _repr_html_(self) -> str:
        address = escape(self.address)
        return f'<p>Slackwater console: <a href="{address}" target="_blank" rel="noopener">{address}</a></p>'


def ui(
    spark: SparkSession,
    *,
    store: str | None = None,
    port: int | None = None,
    host: str = LOOPBACK,
    token: str | None = None,
    jobs: Iterable[str | Path] = (),
) -> RunningConsole:
    """Serve the console for a running session, in a thread of this process.

    Args:
        spark: The session whose queries it shows.
        store: The address of the metadata store that it reads; by default that of ``session(monitor=…)`` or
            of the environment variable ``SLACKWATER_STORE``. Without any of them the queries are recorded in
            a temporary store, which ends with the process.
        port: The port; 0 for any free one. By default 7373 or, if that is taken, any free one.
        host: The interface to listen on. One that other machines can reach needs a token.
        token: The token that requests must carry.
        jobs: Job files whose plans the Ingestion view shows.

    Returns:
        The running console; ``print(console.address)`` shows where. Close it, or use it in a ``with`` block.

    Raises:
        InvalidArgument: An argument is not valid, or the port is not free.
        MissingExtra: The extra ``ui`` is not installed.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with sw.ui(spark, port=0) as console:
    ...     console.address.startswith("http://127.0.0.1:")
    True
    """
    from slackwater.spark.monitor.telemetry import start_recording, telemetry
    from slackwater.spark.session import monitor_url

    address = store or monitor_url(spark)
    cleanup = ExitStack()
    if address is None:
        folder = cleanup.enter_context(TemporaryDirectory(prefix="slackwater-", ignore_cleanup_errors=True))
        address = f"sqlite:///{folder}/console.db"
        open_store(address, create=True).close()
        cleanup.enter_context(telemetry(spark, store=address))
    else:
        start_recording(spark)
    views = Views(address, jobs=[Path(job) for job in jobs])
    try:
        return RunningConsole(views, host=host, port=port, token=token, cleanup=cleanup).start()
    except BaseException:
        cleanup.close()
        raise


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket that already accepts connections: a page that opens before the server runs waits for it."""
    wanted = DEFAULT_PORT if port is None else port
    if not 0 <= wanted <= _LAST_PORT:
        raise InvalidArgument("port", wanted, f"is not between 0 and {_LAST_PORT}", fix=_PORT_FIX)
    try:
        try:
            return _listening_on(host, wanted)
        except OSError:
            if port is not None:
                raise
            return _listening_on(host, 0)
    except OSError as error:
        reason = f"cannot be bound on {host}: {error.strerror or error}"
        raise InvalidArgument("port", wanted, reason, fix=_PORT_FIX) from None


def _listening_on(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        # Until a socket listens, another one may bind the same port.
        made.listen()
    except OSError:
        made.close()
        raise
    return made
