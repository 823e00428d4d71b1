"""Leases: assign work to one process at a time, until the lease expires.

A lease keeps two processes from doing the same work, but does not guarantee it: a process can pause beyond
the end of its lease and then continue. Writes that must not happen twice check the version of the lease or of
the record that they change. Leases end by the clock of the store, so the clocks of the hosts do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from slackwater.errors import InvalidArgument
from slackwater.metadata.store import MetadataStore
from slackwater.metadata.store_schema import leases


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: ``owner`` does the work ``name`` until ``expires_at``. Each change raises the version.

    >>> Lease("bucket 7", "controller-a", 10_000_000, 1).expires_at
    10000000
    """

    name: str
    owner: str
    expires_at: int
    version: int


class Leases:
    """The leases of a store. A lease has expired at exactly its end.

    Args:
        store: The metadata store.
        clock: Returns the current time in microseconds; by default the clock of the store.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     at_zero, later = Leases(store, clock=lambda: 0), Leases(store, clock=lambda: 10)
    ...     mine = at_zero.acquire("job", "a", lasting=10)
    ...     print(at_zero.acquire("job", "b", lasting=10), later.acquire("job", "b", lasting=10))
    ...     print(later.renew(mine, lasting=10))
    None Lease(name='job', owner='b', expires_at=20, version=2)
    None
    """

    def __init__(self, store: MetadataStore, *, clock: Callable[[], int] | None = None) -> None:
        self._store = store
        self._clock = clock

    def acquire(self, name: str, owner: str, *, lasting: int) -> Lease | None:
        """Acquire a lease that is free, has expired, or already belongs to ``owner``.

        Args:
            name: Name of the work.
            owner: Id of the process that does it.
            lasting: Length of the lease in microseconds.

        Returns:
            The lease, or None if another owner has it.
        """
        _checked(lasting)

        def work(connection: Connection) -> Lease | None:
            now = self._now(connection)
            until = now + lasting
            found = connection.execute(
                sql.select(leases).where(leases.c.name == name).with_for_update()
            ).one_or_none()
            if found is None:
                connection.execute(
                    leases.insert().values(name=name, owner=owner, expires_at=until, version=1)
                )
                return Lease(name, owner, until, 1)
            if found.owner != owner and found.expires_at > now:
                return None
            return _changed(connection, Lease(name, owner, until, found.version))

        try:
            return self._store.write(work)
        except IntegrityError:
            # another process inserted the lease between our query and our insert
            return self._store.write(work)

    def renew(self, lease: Lease, *, lasting: int) -> Lease | None:
        """Extend a lease.

        Args:
            lease: The lease as it was last acquired or renewed.
            lasting: New length in microseconds, from now.

        Returns:
            The extended lease, or None if it was lost to another owner.
        """
        _checked(lasting)

        def work(connection: Connection) -> Lease | None:
            until = self._now(connection) + lasting
            return _changed(connection, Lease(lease.name, lease.owner, until, lease.version))

        return self._store.write(work)

    def release(self, lease: Lease) -> bool:
        """Release a lease before its end; return False if it was already lost."""
        removal = leases.delete().where(leases.c.name == lease.name, leases.c.version == lease.version)
        removal = removal.where(leases.c.owner == lease.owner)
        return self._store.write(lambda connection: connection.execute(removal).rowcount == 1)

    def held(self, prefix: str = "") -> list[Lease]:
        """The leases that have not expired and whose names start with ``prefix``, by name."""
        query = sql.select(leases).where(leases.c.name.startswith(prefix, autoescape=True))

        def work(connection: Connection) -> list[Lease]:
            alive = query.where(leases.c.expires_at > self._now(connection)).order_by(leases.c.name)
            rows = connection.execute(alive)
            return [Lease(row.name, row.owner, row.expires_at, row.version) for row in rows]

        return self._store.read(work)

    def _now(self, connection: Connection) -> int:
        return self._store.now(connection) if self._clock is None else self._clock()


def _changed(connection: Connection, wanted: Lease) -> Lease | None:
    """Replace the lease by ``wanted`` with the next version; None if its version is not current any more."""
    change = (
        leases.update()
        .where(leases.c.name == wanted.name, leases.c.version == wanted.version)
        .values(owner=wanted.owner, expires_at=wanted.expires_at, version=wanted.version + 1)
    )
    if connection.execute(change).rowcount == 0:
        return None
    return Lease(wanted.name, wanted.owner, wanted.expires_at, wanted.version + 1)


def _checked(lasting: int) -> int:
    if lasting <= 0:
        raise InvalidArgument("lasting", lasting, "must be greater than zero", fix="give microseconds")
    return lasting
