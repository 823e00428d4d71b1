"""The ledger in the metadata of a lakehouse table: the last batch of each query, its owner, its completeness.

It is written in the commit that applies a batch, so a batch is applied once, however often it is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from slackwater.errors import CorruptState
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import BATCH_JOB, Claim, CommitOwner, Committer, claim
from slackwater.sql.pane_targets import StaleBatch


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded for an identity.

    >>> LedgerEntry.decode(LedgerEntry(7, "5f1c", ("a", "b"), complete_until=20).encode()).runs
    ('a', 'b')
    """

    batch: int
    query: str | None
    """None if only the number of the batch is known."""
    runs: tuple[str, ...] = ()
    complete_until: int | None = None
    final_until: int | None = None
    clock: int | None = None
    """The processing time of the batch; None if it is unknown."""

    @property
    def completeness(self) -> Completeness:
        """The completeness of the table after the batch."""
        return Completeness(self.complete_until, self.final_until)

    def encode(self) -> str:
        """The entry as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> LedgerEntry:
        """Read what `encode` returned."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptState("ledger of a table", str(error)) from error


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """A batch that is about to be committed: its number, who commits it, and what it states.

    >>> BatchCommit("query 5f1c", 0, Committer("5f1c"), Completeness()).number
    0
    """

    identity: str
    number: int
    committer: Committer
    completeness: Completeness
    clock: int | None = None
    """The processing time of the batch, which is the same if the batch is repeated; None if it is unknown."""

    def entry(self, table: str, known: Mapping[str, LedgerEntry]) -> LedgerEntry | None:
        """The entry to record with the batch; None if the batch was applied before.

        Raises:
            IdentityInUse: The identity belongs to another query, or to a newer run of this one.
            StaleBatch: A later batch of the query was applied before, or one with the same number and other
                results.
        """
        before, admitted = known.get(self.identity), self._claim(table, known, self.identity)
        own = max(self._own(known), key=lambda name: known[name].batch, default=None)
        if own is not None:  # a takeover does not number the batches of this query anew
            before, admitted = known[own], self._claim(table, known, own)
        if before is not None and not admitted.numbered_anew:
            if self.number < before.batch or (self.number == before.batch and self._contradicts(before)):
                raise StaleBatch(table, self.identity, self.number, before.batch)
            if self.number == before.batch:
                return None
        stated = self.completeness
        return LedgerEntry(
            self.number,
            admitted.owner.query,
            admitted.owner.runs,
            stated.complete_until,
            stated.final_until,
            self.clock,
        )

    def record(self, known: Mapping[str, LedgerEntry], entry: LedgerEntry) -> dict[str, LedgerEntry]:
        """The ledger with the entry, which replaces all entries of the query.

        >>> first = BatchCommit("query 5f1c", 0, Committer("5f1c"), Completeness())
        >>> named = BatchCommit("totals", 1, Committer("5f1c"), Completeness())
        >>> known = {"query 5f1c": first.entry("panes", {})}
        >>> list(named.record(known, named.entry("panes", known)))
        ['totals']
        """
        own = self._own(known)
        return {**{name: one for name, one in known.items() if name not in own}, self.identity: entry}

    def _claim(self, table: str, known: Mapping[str, LedgerEntry], identity: str) -> Claim:
        found = known.get(identity)
        return claim(
            None if found is None else CommitOwner(found.query, found.runs),
            self.committer,
            subject=f"identity {identity!r} of table {table}",
            another="pass another identity=",
        )

    def _own(self, known: Mapping[str, LedgerEntry]) -> list[str]:
        """The identities under which the query has committed: others if its ``identity=`` was changed.

        A query has one sink. Batch jobs have no query.
        """
        query = self.committer.query
        return [] if query == BATCH_JOB else [name for name, one in known.items() if one.query == query]

    def _contradicts(self, before: LedgerEntry) -> bool:
        """Whether an entry with this number is of another batch, as after a restore of the checkpoint.

        A batch that is repeated after a failure has the offsets of the first attempt, the clock among them.
        The number of rows is not compared: which rows are late may depend on their order within the batch.
        """
        if before.query is None:
            return False  # only the number is known
        if None not in (self.clock, before.clock) and self.clock != before.clock:
            return True
        return self.completeness.contradicts(before.completeness)
