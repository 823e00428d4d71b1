"""Which faults a seed injects, and how often.

Every seed enables a random subset of the kinds of faults. A seed with few kinds reaches states that a seed
with all of them never survives to reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from slackwater.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of one seed.

    >>> FaultPlan().crash, FaultPlan.of(Random(1)) == FaultPlan.of(Random(1))
    (0.0, True)
    """

    crash: float = 0.0
    """Chance that a process is killed at a statement, write, fsync or commit."""
    stall: float = 0.0
    """Chance that a process stands still there."""
    longest_stall: int = 20 * SECOND
    lost_request: float = 0.0
    """Chance that a connection is lost at a statement."""
    lost_response: float = 0.0
    """Chance that the response to a commit is lost, although it was stored."""
    restart_every: int | None = None
    """Mean time between restarts of the database."""
    longest_outage: int = 0
    power_failure_every: int | None = None
    full_disk_every: int | None = None
    clock_error: int = 0
    """Largest error of the clock of a process."""
    resend: float = 0.0
    """Chance that a producer sends a message again."""

    @classmethod
    def of(cls, random: Random) -> FaultPlan:
        """The plan of a seed."""

        def maybe(value: float) -> float:
            return value if random.random() < 0.5 else 0.0

        def every(mean: int) -> int | None:
            return mean if random.random() < 0.4 else None

        return cls(
            crash=maybe(random.choice([0.003, 0.01, 0.03])),
            stall=maybe(random.choice([0.003, 0.01])),
            longest_stall=random.choice([2 * SECOND, 20 * SECOND, 3 * MINUTE, 3 * HOUR]),
            lost_request=maybe(random.choice([0.005, 0.02])),
            lost_response=maybe(random.choice([0.03, 0.1])),
            restart_every=every(MINUTE),
            longest_outage=random.choice([500 * MILLISECOND, 3 * SECOND, 30 * SECOND]),
            power_failure_every=every(MINUTE),
            full_disk_every=every(MINUTE),
            clock_error=random.choice([0, 0, 200 * MILLISECOND, 20 * SECOND, 2 * DAY]),
            resend=maybe(0.2),
        )
