"""The event-time picture of a demo run: arrivals, the watermark and the panes of one auction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slackwater.demo.bids import Bid
from slackwater.demo.demo_pipeline import DemoRun
from slackwater.plot.event_time_drawing import draw
from slackwater.plot.scene import Box, Corner, Dot, Fate, Scene, pane_begin
from slackwater.time import END_OF_TIME


@dataclass(frozen=True)
class Picture:
    """The picture of one auction of a run."""

    run: DemoRun
    bids: Sequence[Bid]
    auction: str

    def save(self, target: Path) -> None:
        """Draw the picture into a file; times are seconds since the start of the first window."""
        title = f"Bids for the {self.auction}, and the best so far"
        draw(self.scene(), target, unit="s", title=title)

    def scene(self) -> Scene:
        """The bids that were sent, the panes, and the watermarks that the batches reported."""
        run, auction = self.run, self.auction
        reports = run.reports
        watermarks = {number: report.watermark for number, report in reports.items()}

        def clock(batch: int) -> int:
            """The processing time of a batch; without a report, that of the last batch before it."""
            reported = max((number for number in reports if number <= batch), default=min(reports))
            return reports[reported].slowest.now - beginning

        panes = [pane for pane in run.collected() if pane.auction == auction]
        beginning = min(pane.start for pane in panes)
        corners: list[Corner] = []
        for number in sorted(reports):
            watermark = watermarks[number]
            if watermark is None or watermark == END_OF_TIME:
                continue
            if not corners or watermark - beginning > corners[-1].watermark:
                corners.append(Corner(clock(number), watermark - beginning))
        dropped = {pane.best for pane in panes if pane.kind == "late"}
        dots: list[Dot] = []
        for bid in self.bids:
            if bid.auction == auction:
                batch = run.batch_of(bid)
                before = [mark for number, mark in watermarks.items() if number < batch and mark is not None]
                late = bool(before) and bid.at < max(before)
                fate: Fate = "dropped" if bid.price in dropped else "late" if late else "on time"
                dots.append(Dot(bid.at - beginning, clock(batch), str(bid.price), fate))
        boxes: list[Box] = []
        for pane in panes:
            if pane.kind == "pane" and pane.timing is not None:
                start, end = pane.start - beginning, pane.end - beginning
                fired = clock(pane.batch)
                since = pane_begin(start, end, fired, dots, boxes)
                boxes.append(Box(start, end, since, fired, pane.timing, str(pane.best), ()))
        finish = clock(max(reports))
        return Scene(tuple(dots), tuple(boxes), tuple(corners), finish, clocked=True)
