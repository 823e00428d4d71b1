"""The event-time picture of the demo's run: what arrived, where the watermark was, which panes came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slackwater.demo.bids import Bid
from slackwater.demo.demo_pipeline import Run
from slackwater.plot.drawing import draw
from slackwater.plot.scene import Box, Corner, Dot, Fate, Scene, beginning_of
from slackwater.time import END_OF_TIME


@dataclass(frozen=True)
class Picture:
    """One auction of a run."""

    run: Run
    bids: Sequence[Bid]
    auction: str

    def save(self, target: Path) -> None:
        """Draw it into a file; times are seconds since the first window began."""
        title = f"Bids for the {self.auction}, and the best so far"
        draw(self.scene(), target, unit="s", title=title)

    def scene(self) -> Scene:
        """What was sent, what came out, and what the batches reported."""
        run, auction = self.run, self.auction
        reports = run.reports
        marks = {number: report.watermark for number, report in reports.items()}

        def clock(batch: int) -> int:
            """When a batch was; one that was stopped before it could report came soon after the last."""
            told = max((number for number in reports if number <= batch), default=min(reports))
            return reports[told].slowest.now - beginning

        mine = [pane for pane in run.said() if pane.auction == auction]
        beginning = min(pane.start for pane in mine)
        corners: list[Corner] = []
        for number in sorted(reports):
            mark = marks[number]
            if mark not in (None, END_OF_TIME) and (not corners or mark - beginning > corners[-1].watermark):
                corners.append(Corner(clock(number), mark - beginning))
        dropped = {pane.best for pane in mine if pane.kind == "late"}
        dots: list[Dot] = []
        for bid in self.bids:
            if bid.auction == auction:
                batch = run.batch_of(bid)
                before = [mark for number, mark in marks.items() if number < batch and mark is not None]
                late = bool(before) and bid.at < max(before)
                fate: Fate = "dropped" if bid.price in dropped else "late" if late else "on time"
                dots.append(Dot(bid.at - beginning, clock(batch), str(bid.price), fate))
        boxes: list[Box] = []
        for pane in mine:
            if pane.kind == "pane" and pane.timing is not None:
                start, end = pane.start - beginning, pane.end - beginning
                fired = clock(pane.batch)
                since = beginning_of(start, end, fired, dots, boxes)
                boxes.append(Box(start, end, since, fired, pane.timing, str(pane.best), ()))
        finish = clock(max(reports))
        return Scene(tuple(dots), tuple(boxes), tuple(corners), finish, clocked=True)
