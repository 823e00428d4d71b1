"""The lease of a job: the exclusive right of one process to run it or to change its history.

A lease can expire while its holder is suspended, so the holder checks it in every transaction that it writes
to the store. Targets are not in the store: each lease has a fencing token, higher than those of all earlier
leases of the job, and a target rejects a token that is lower than the highest one it has seen.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import StoreUnavailable
from slackwater.ingest.job_errors import AlreadyRunning, RunReplaced
from slackwater.metadata.leases import Lease, Leases
from slackwater.metadata.store import MetadataStore, insert_of
from slackwater.metadata.store_schema import jobs, leases
from slackwater.time import SECOND

_LASTING: Final = 30 * SECOND
_BEAT: Final = 8.0
_RETRY: Final = 1.0
"""Seconds between the attempts to renew a lease while the store is unavailable."""


class JobLease:
    """The exclusive right to run a job or to change its history.

    Raises `AlreadyRunning` while another process holds the lease. The lease of a dead process on this machine
    is taken over at once, any other when it has expired.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     with JobLease(store, "orders"):
    ...         try:
    ...             JobLease(store, "orders")
    ...         except AlreadyRunning as error:
    ...             print(error.job)
    orders
    """

    def __init__(self, store: MetadataStore, job: str, *, clock: Callable[[], int] | None = None) -> None:
        self.job = job
        self._store = store
        self._clock = clock
        self._leases = Leases(store, clock=clock)
        self._name = f"ingest {job}"
        self._owner = f"{_host()} process {os.getpid()} run {uuid.uuid4().hex}"
        self._lease = self._acquired()
        try:
            self.token = store.write(self._next_token, repeatable=True)
        except BaseException:
            self._release()
            raise
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

    def _next_token(self, connection: Connection) -> int:
        """A token above all earlier ones; it follows the clock, so that a new store continues them."""
        self.check(connection)
        known = sql.select(jobs.c.token).where(jobs.c.job == self.job).with_for_update()
        before: int = connection.execute(known).scalar() or 0
        at = self._store.now(connection) if self._clock is None else self._clock()
        token = max(before + 1, at)
        insert = insert_of(connection)(jobs).values(job=self.job, token=token)
        connection.execute(insert.on_conflict_do_update(index_elements=["job"], set_={"token": token}))
        return token

    def _beat(self) -> None:
        pause = _BEAT
        while not self._stop.wait(pause):
            try:
                renewed = self._renewed()
            except Exception:  # whatever the database reports: the lease may be renewed once it is back
                pause = _RETRY
                continue
            if renewed is None:
                return
            self._lease, pause = renewed, _BEAT

    def _renewed(self) -> Lease | None:
        """The extended lease; None if another process holds it, or it was released."""
        renewed = self._leases.renew(self._lease, lasting=_LASTING)
        if renewed is not None:
            return renewed
        # a renewal whose reply was lost has changed the version
        query = sql.select(leases).where(leases.c.name == self._name, leases.c.owner == self._owner)
        found = self._store.read(lambda connection: connection.execute(query).one_or_none())
        return None if found is None else self._leases.renew(Lease(*found), lasting=_LASTING)

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
        self._release()

    def _release(self) -> None:
        with suppress(StoreUnavailable):  # the lease expires by itself
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
