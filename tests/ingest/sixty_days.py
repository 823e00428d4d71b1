"""A run a day for many days, with failures and kills: `python -m tests.ingest.sixty_days --days 600`.

The runs happen in a program of its own, which is killed with everything that it started; the first and the
last ones are commands. What a job was doing when it died is read from its last words.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slackwater.ingest.ledger.run_ledger import list_runs
from slackwater.metadata.store import open_store
from slackwater.time import DAY, HOUR, format_instant
from tests.ingest.shops import BAD_DAYS, FAILURES, START, Shop
from tests.spark.postgres import Server, running_server
from tests.support.programs import Program

PHASES: Final = ("starting", "planned", "reading", "writing", "written", "recorded")
"""The last step of a job before it dies; ``written``: the target shows a unit, and the state does not."""
_AIMS: Final = {"starting": 14, "reading": 4, "writing": 4, "written": 4, "recorded": 3, "day": 2}
_LONGEST_WAIT: Final = {"starting": 4.0, "reading": 0.7, "writing": 0.4, "day": 2.0}


@dataclass
class Days:
    """What is still to happen, and what has happened."""

    folder: Path
    shops: Sequence[Shop]
    chance: random.Random
    aims: list[str]
    failures: list[str]
    kills: Counter[str] = field(default_factory=Counter)
    died: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Jobs that were under way when they were killed, and their last step."""
    failed: Counter[str] = field(default_factory=Counter)
    _program: Program | None = None
    _started: int = 0

    def live(self, days: int) -> None:
        """All days; on the last one everything that is still to happen happens."""
        bad = 0
        self._first_day()
        for day in range(1, days):
            for shop in self.shops:
                shop.trade(day)
            while True:
                if day == days - 1 and set(self.aims) == {"starting"} and not self.failures:
                    self.stop()  # so that the next one starts
                complete = self._try(day, self._drawn(days - day))
                left = day == days - 1 and (self.aims or self.failures)
                if complete and not left:
                    bad = 0
                    break
                if not complete and not left and bad < BAD_DAYS and self.chance.random() < 0.5:
                    bad += 1
                    break
            if day == 2:
                self.stop()  # which writes down the classes that later programs load
        self.stop()
        commands = [self._command(shop, days - 1) for shop in self.shops]
        for command in commands:
            with command:
                command.finish()

    def stop(self) -> None:
        """Let the program end by itself, if it runs."""
        if self._program is not None:
            self._order("stop")
            self._program.finish()
            self._program.kill()
            self._program = None

    # ---- programs

    def _first_day(self) -> None:
        """By the command; one of them is killed."""
        for shop in self.shops:
            shop.trade(0)
        killed, finished = (self._command(shop, 0) for shop in self.shops)
        with killed, finished:
            time.sleep(self.chance.uniform(0.5, 2 * _LONGEST_WAIT["starting"]))
            killed.kill()
            self.kills["command"] += 1
            finished.finish()

    def _command(self, shop: Shop, day: int) -> Program:
        job, state = str(self.folder / f"{shop.name}.yaml"), ["--state", shop.store]
        self._started += 1
        return Program(
            [sys.executable, "-m", "slackwater.cli", "ingest", job, *state, "--now", _morning_after(day)],
            self.folder / f"command-{self._started:03}.log",
        )

    def _start(self) -> Program:
        self._started += 1
        classes = self.folder / "classes.jsa"
        option = "SharedArchiveFile" if classes.exists() else "ArchiveClassesAtExit"
        stores = [f"{shop.name}={shop.store}" for shop in self.shops]
        return Program(
            [sys.executable, "-m", "tests.ingest.days", str(self.folder), *stores],
            self.folder / f"program-{self._started:03}.log",
            {"SPARK_SUBMIT_OPTS": f"-XX:{option}={classes}"},
        )

    def _running(self) -> Program:
        """A program that is ready; some are killed before they are."""
        if self._program is None:
            self._order("")
            while "starting" in self.aims and self.died and self.chance.random() < 0.5:
                self.aims.remove("starting")
                self._program = self._start()
                self._kill("starting")
            self._program = self._start()
            self._program.wait_until(lambda: "ready" in self._said())
        return self._program

    def _order(self, text: str) -> None:
        written = self.folder / "day.new"
        written.write_text(text, encoding="utf-8")
        written.replace(self.folder / "day")

    def _said(self, since: str = "") -> list[str]:
        """What the program said since a line, if it has said that."""
        assert self._program is not None
        said = self._program.said().splitlines()
        if not since:
            return said
        return said[said.index(since) :] if since in said else []

    # ---- a day

    def _drawn(self, rest: int) -> str | None:
        """What happens this time."""
        cards = [aim for aim in self.aims if aim != "starting"] + self.failures
        likely = self.chance.random() < 1.2 * len(cards) / rest
        return self.chance.choice(cards) if cards and likely else None

    def _try(self, day: int, card: str | None) -> bool:
        """Run the jobs after a day; whether all units succeeded."""
        self._running()
        order = f"{_morning_after(day)} {time.monotonic_ns()}"
        if card in self.failures:
            return self._fail(order, str(card))
        if card in self.aims and card != "starting":
            self._strike(order, str(card))
            return False
        return self._run(order)

    def _run(self, order: str) -> bool:
        self._order(order)
        self._running().wait_until(
            lambda: any(line.startswith("done") for line in self._said(f"day {order}"))
        )
        return self._said()[-1].endswith("well")

    def _fail(self, order: str, how: str) -> bool:
        self.failures.remove(how)
        with ExitStack() as stack:
            for shop in self.shops:
                stack.enter_context(shop.failing(how))
            complete = self._run(order)
        assert complete == (how == "locked"), self._said(f"day {order}")
        self.failed[how] += 1
        return complete

    def _strike(self, order: str, aim: str) -> None:
        self.aims.remove(aim)
        shop = self.shops[self.kills[aim] % len(self.shops)]
        hold = self.folder / "hold"
        with ExitStack() as stack:
            if aim == "writing":
                for each in self.shops:
                    stack.enter_context(each.failing("slow"))
            elif aim not in _LONGEST_WAIT:
                hold.write_text(f"{aim} {shop.name}", encoding="utf-8")
                stack.callback(hold.unlink)
            awaited = f"{aim} {shop.name}" if aim in _LONGEST_WAIT else f"held {shop.name}"
            awaited = f"day {order}" if aim == "day" else awaited
            self._order(order)
            self._running().wait_until(lambda: awaited in self._said(f"day {order}"), interval=0.004)
            self._kill(aim, f"day {order}", held=shop if aim not in _LONGEST_WAIT else None)

    def _kill(self, aim: str, since: str = "", *, held: Shop | None = None) -> None:
        """Kill the program a moment later, and see what it was doing."""
        time.sleep(self.chance.uniform(0, _LONGEST_WAIT.get(aim, 0.05)))
        assert self._program is not None
        self._program.kill()
        self.kills[aim] += 1
        said = self._said(since)
        self._program = None
        for shop in self.shops:
            steps = [line.split(" ")[0] for line in said if line.split(" ")[1:] == [shop.name]]
            if held == shop:
                self.died[shop.name, aim] += 1
            elif "over" not in steps:
                self.died[shop.name, steps[-1] if steps else "starting"] += 1
            shop.check_no_row_comes_twice()


def _morning_after(day: int) -> str:
    return format_instant(START + (day + 1) * DAY + 6 * HOUR)


def live(folder: Path, server: Server, *, days: int, seed: int) -> Days:
    """So many days, of which half bring a kill and a sixth something that fails; then what must hold."""
    shops = [
        Shop("embedded", f"sqlite:///{folder}/shop.db", f"sqlite:///{folder}/state.db", folder),
        Shop("served", server.create_database("shop"), server.create_database("states"), folder),
    ]
    for shop in shops:
        shop.open()
    aims = [aim for aim, count in _AIMS.items() for _ in range(count * days // 60)]
    lived = Days(folder, shops, random.Random(seed), aims, [*FAILURES] * (days // 18))
    try:
        lived.live(days)
    except BaseException:
        if lived._program is not None:
            lived._program.kill()
        raise
    for shop in shops:
        shop.check_the_end(days)
        with open_store(shop.store) as store:
            states = Counter(run.state for run in list_runs(store, shop.name, limit=10 * days))
        died = {phase: lived.died[shop.name, phase] for phase in PHASES}
        surely = died["reading"] + died["writing"] + died["written"]
        perhaps = died["planned"] + died["recorded"] + lived.kills["command"]
        assert surely <= states["interrupted"] <= surely + perhaps
        assert states["failed"] >= lived.failed["gone"] + lived.failed["refused"]
        assert not states["running"]
    return lived


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=600, help="how many days (default 600)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (default 1)")
    given = parser.parse_args()
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        lived = live(Path(folder), server, days=given.days, seed=given.seed)
    for what in ("kills", "died", "failed"):
        sys.stdout.write(f"{what}: {dict(getattr(lived, what))}\n")


if __name__ == "__main__":
    main()
