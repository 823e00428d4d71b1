"""Which query may commit under an identity.

Spark numbers the batches of a query from 0, so a number identifies a batch only together with the query: a
query with a new checkpoint, or a second query, uses the same numbers for other rows. The owner of an identity
is therefore recorded with its last batch. A query that is not the owner is refused, unless it names the owner
that it replaces. The id of a query stays the same over restarts from one checkpoint, and the id of its run
changes with every restart. A run that was replaced by another one is refused as well, as happens if a
checkpoint folder is copied and both copies run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slackwater.errors import SlackwaterError

BATCH_JOB: Final = "batch"
"""The owner of identities under which batch jobs commit."""
_MOST_RUNS: Final = 50


class IdentityInUse(SlackwaterError):
    """Another query commits under the same identity, or another run of the same query does."""

    def __init__(self, subject: str, reason: str, fix: str) -> None:
        self.subject = subject
        self.reason = reason
        self.fix = fix
        super().__init__(f"{subject} {reason}. Nothing was written; {fix}")


@dataclass(frozen=True, slots=True)
class Committer:
    """The query that commits, its run, and the query that it replaces, if it replaces one.

    >>> Committer("5f1c").run is None
    True
    """

    query: str
    run: str | None = None
    takeover_from: str | None = None


@dataclass(frozen=True, slots=True)
class CommitOwner:
    """The recorded owner of an identity: a query, and its runs, the newest last.

    >>> CommitOwner.of("5f1c", "a,b").runs
    ('a', 'b')
    """

    query: str | None
    """None if the last commit was recorded by a release that did not record owners."""
    runs: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: str | None, runs: str | None) -> CommitOwner:
        """The owner as it was recorded."""
        return cls(query, tuple(runs.split(",")) if runs else ())

    @property
    def runs_text(self) -> str:
        """The runs as they are recorded."""
        return ",".join(self.runs)


@dataclass(frozen=True, slots=True)
class Claim:
    """An admitted committer: the owner to record, and whether its batches are numbered anew.

    >>> Claim(CommitOwner("5f1c"), numbered_anew=True).owner.query
    '5f1c'
    """

    owner: CommitOwner
    numbered_anew: bool


def claim(known: CommitOwner | None, committer: Committer, *, subject: str, another: str) -> Claim:
    """Admit a committer, or refuse it.

    Args:
        known: The recorded owner; None if nothing was committed under the identity.
        committer: The query that is about to commit.
        subject: The identity in error messages, such as ``identity 'daily' of table totals``.
        another: How to choose another identity, for error messages.

    Raises:
        IdentityInUse: The identity belongs to another query, or another run has replaced this one.

    >>> first = claim(None, Committer("5f1c", "run 1"), subject="identity 'x'", another="pass identity=")
    >>> claim(first.owner, Committer("9d20"), subject="identity 'x'", another="pass another identity=")
    Traceback (most recent call last):
    slackwater.sql.commit_owner.IdentityInUse: identity 'x' belongs to query 5f1c, and this is query 9d20, \
in which the same batch numbers refer to other rows. Nothing was written; pass another identity=, or, if \
query 5f1c will not run again, takeover_from='5f1c'
    >>> claim(first.owner, Committer("9d20", None, "5f1c"), subject="", another="").numbered_anew
    True
    """
    mine = () if committer.run is None else (committer.run,)
    if known is None:
        return Claim(CommitOwner(committer.query, mine), numbered_anew=True)
    if known.query is None:
        return Claim(CommitOwner(committer.query, mine), numbered_anew=False)
    if known.query != committer.query:
        if committer.takeover_from == known.query:
            return Claim(CommitOwner(committer.query, mine), numbered_anew=True)
        owner = _described(known.query)
        raise IdentityInUse(
            subject,
            f"belongs to {owner}, and this is {_described(committer.query)}, in which the same batch numbers "
            f"refer to other rows",
            f"{another}, or, if {owner} will not run again, takeover_from={known.query!r}",
        )
    if committer.run is None or known.runs[-1:] == mine:
        return Claim(known, numbered_anew=False)
    if committer.run in known.runs:
        raise IdentityInUse(
            subject,
            f"is used by two runs of query {known.query}: run {known.runs[-1]} has replaced run "
            f"{committer.run}",
            "stop one of them; if its checkpoint folder is a copy, start that query with a new checkpoint",
        )
    return Claim(CommitOwner(known.query, (*known.runs, *mine)[-_MOST_RUNS:]), numbered_anew=False)


def _described(query: str) -> str:
    return "a batch job" if query == BATCH_JOB else f"query {query}"
