"""The lease of a job: the exclusive right of one process to run it or to change its history.

A lease can expire while its holder is suspended, so the holder checks it in every transaction that it writes.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.job_errors import AlreadyRunning, RunReplaced
from slackwater.metadata.leases import Lease, Leases
from slackwater.metadata.store import MetadataStore
from slackwater.metadata.store_schema import leases
from slackwater.time import SECOND
from slackwater.time import now as wall_clock

_LASTING: Final = 30 * SECOND
_BEAT: Final = 8.0


class JobLease:
    """The exclusive right to run a job or to change its history.

    Raises `AlreadyRunning` while another process holds the lease. The lease of a dead process on this machine
    is taken over at once, any other when it has expired.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     with JobLease(store, "orders"):
    ...         try:
    ...             JobLease(store, "orders")
    ...         except AlreadyRunning as error:
    ...             print(error.job)
    orders
    """

    def __init__(self, store: MetadataStore, job: str, *, clock: Callable[[], int] = wall_clock) -> None:
        self.job = job
        self._leases = Leases(store, clock=clock)
        self._name = f"ingest {job}"
        self._owner = f"{_host()} process {os.getpid()} run {uuid.uuid4().hex}"
        self._lease = self._acquired()
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, name=self._name, daemon=True)
        self._beating.start()

    def _acquired(self) -> Lease:
        found = self._leases.acquire(self._name, self._owner, lasting=_LASTING)
        if found is None:
            holders = [lease for lease in self._leases.held(self._name) if lease.name == self._name]
            for holder in holders:
                if _is_dead(holder.owner):
                    self._leases.release(holder)
            found = self._leases.acquire(self._name, self._owner, lasting=_LASTING)
            if found is None:
                raise AlreadyRunning(self.job, holders[0].owner if holders else "another process")
        return found

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            renewed = self._leases.renew(self._lease, lasting=_LASTING)
            if renewed is None:
                return
            self._lease = renewed

    def check(self, connection: Connection) -> None:
        """Raise `RunReplaced` if another process holds the lease; locks it until the transaction ends."""
        holder = sql.select(leases.c.owner).where(leases.c.name == self._name).with_for_update()
        if connection.execute(holder).scalar() != self._owner:
            raise RunReplaced(self.job)

    def __enter__(self) -> JobLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._beating.join()
        self._leases.release(self._lease)


def _host() -> str:
    """The host, with its boot id and PID namespace where available."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()} {boot} {space}"


def _is_dead(owner: str) -> bool:
    """Whether the owner was a process on this host that no longer runs."""
    host, _, rest = owner.partition(" process ")
    if host != _host() or " " not in host:
        return False
    try:
        os.kill(int(rest.split(" ")[0]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        return False
    return False
