"""Watermark generators (G1-G9). Cases number partitions by their index among the existing ones."""

from __future__ import annotations

from itertools import count

from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.values import Emission, Origin
from slackwater.progress.watermark_policies import Clock, Constant, FixedDelay, Lag, WatermarkPolicy
from tests.conformance.emissions import check_emissions
from tests.conformance.framework import BrokenCase, Case, Fields, Step, flag, run_steps

FIELDS = Fields({"steps"}, {"partitions", "policy", "lag", "value", "frame", "frame_offset", "idle_after"})
STEPS = (
    Fields({"event", "partition"}, {"now", "emit"}),
    Fields({"tick"}, {"now", "emit"}),
    Fields({"add"}, {"now", "emit"}),
    Fields({"remove"}, {"now", "emit"}),
    Fields({"restore"}, {"now", "emit"}),
)


def _policy(case: Case) -> WatermarkPolicy:
    name = case.get("policy", "lag")
    if name == "constant":
        return Constant(case["value"])
    policies: dict[str, type[Lag | Clock | FixedDelay]] = {"lag": Lag, "clock": Clock, "fixed": FixedDelay}
    if name not in policies:
        raise BrokenCase(f"policy {name!r} is none of {', '.join(policies)}, constant")
    return policies[name](case.get("lag", 0))


class _Driver:
    """A generator, the clock of the case, and the current numbers of the partitions."""

    def __init__(self, case: Case) -> None:
        self.now = 0
        self._names = count()
        self._numbered: list[int] = [next(self._names) for _ in range(case.get("partitions", 1))]
        self.generator = WatermarkGenerator(
            _policy(case),
            partitions=self._numbered,
            now=0,
            idle_after=case.get("idle_after"),
            frame=case.get("frame", 1),
            frame_offset=case.get("frame_offset", 0),
        )

    def _name(self, number: int) -> Origin:
        """The partition with that number, or an unknown name if there is none."""
        there = 0 <= number < len(self._numbered)
        return self._numbered[number] if there else f"partition {number} of {len(self._numbered)}"

    def perform(self, step: Step) -> tuple[Emission, ...]:
        self.now = step.get("now", self.now)
        if "event" in step:
            return self.generator.observe(self._name(step["partition"]), step["event"], now=self.now)
        if flag(step, "tick"):
            return self.generator.tick(now=self.now)
        if "remove" in step:
            emitted = self.generator.remove(self._name(step["remove"]), now=self.now)
            del self._numbered[step["remove"]]
            return emitted
        if "restore" in step:
            watermarks = {self._name(number): value for number, value in step["restore"].items()}
            self.generator.restore(watermarks, now=self.now)
            return ()
        for _ in range(step["add"]):
            self._numbered.append(next(self._names))
            self.generator.add(self._numbered[-1], now=self.now)
        return ()


def _in_one_go(case: Case) -> None:
    driver = _Driver(case)
    run_steps(case["steps"], lambda step: check_emissions(step.get("emit", []), driver.perform(step)))


def _saved_between_steps(case: Case) -> None:
    driver = _Driver(case)

    def perform(step: Step) -> None:
        check_emissions(step.get("emit", []), driver.perform(step))
        driver.generator = driver.generator.load(driver.generator.save())

    run_steps(case["steps"], perform)


SUBJECTS = {"": _in_one_go, "saved": _saved_between_steps}
