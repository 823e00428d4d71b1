"""docs/peers.md: its table and picture are made from results.json, the text around them is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.peers.workloads import WORKLOADS
from benchmarks.report import spread

RESULTS: Final = Path(__file__).parent / "results.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "peers.md"
PICTURE: Final = PAGE.parent / "images" / "benchmark-peers.svg"
BEGIN: Final = "<!-- written by make peers -->"
END: Final = "<!-- end of what make peers writes -->"
NAMES: Final = {
    "slackwater": "Slackwater",
    "spark": "Spark, RocksDB",
    "flink": "Flink SQL",
    "bytewax": "Bytewax",
    "pathway": "Pathway",
    "quix": "Quix Streams",
}


@dataclass
class PeerResult:
    """What was measured of a workload on an engine."""

    engine: str
    workload: str
    rows: int
    windows: int = 0
    """Rows of the truth: a key in a window each."""
    missing: int = 0
    wrong: int = 0
    lost_rows: int = 0
    """Input rows that are in no result; with sliding windows, a row counts for each of its windows."""
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_mib: int = 0
    load: float = 0.0
    """The load of the machine before the first run."""
    cores: int = 0
    error: str = ""

    @property
    def has_speed(self) -> bool:
        """Whether the engine has run and returned something."""
        return bool(self.seconds) and self.missing < self.windows

    def with_runs(self, others: Sequence[PeerResult]) -> PeerResult:
        """This result with the times of further runs, and the worst of their results."""
        every = [self, *others]
        return replace(
            self,
            seconds=[second for one in every for second in one.seconds],
            cpu_seconds=[second for one in every for second in one.cpu_seconds],
            windows=max(one.windows for one in every),
            missing=max(one.missing for one in every),
            wrong=max(one.wrong for one in every),
            lost_rows=max(one.lost_rows for one in every),
            peak_mib=max(one.peak_mib for one in every),
            error=next((one.error for one in every if one.error), ""),
        )

    def __str__(self) -> str:
        times = ", ".join(f"{second:.1f}" for second in self.seconds)
        counts = f"{self.windows:,} windows, {self.missing:,} missing, {self.wrong:,} wrong"
        return (
            f"{self.engine} {self.workload}: {times} s, {counts}, {self.lost_rows:,} rows lost {self.error}"
        )


def load_results(path: Path) -> dict[tuple[str, str], PeerResult]:
    """The results in a file, by workload and engine; empty if there is none."""
    if not path.exists():
        return {}
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {(row["workload"], row["engine"]): PeerResult(**row) for row in rows}


def save_results(path: Path, results: dict[tuple[str, str], PeerResult]) -> None:
    """Write the results in the order of workloads and engines, one a line."""
    workloads, engines = list(WORKLOADS), list(NAMES)
    chosen = sorted(
        results.values(), key=lambda one: (workloads.index(one.workload), engines.index(one.engine))
    )
    lines = ",\n".join(json.dumps(asdict(one)) for one in chosen)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def table(results: dict[tuple[str, str], PeerResult]) -> str:
    """The table of the page."""
    columns = (
        "workload", "engine", "rows", "seconds", "rows per second", "rows per CPU second",
        "windows", "missing", "wrong", "rows lost", "peak MiB", "load",
    )  # fmt: skip
    rows = [columns, ["---", "---", *("--:" for _ in columns[2:])]]
    for workload in WORKLOADS:
        for engine, name in NAMES.items():
            one = results.get((workload, engine))
            if one is not None:
                rows.append([WORKLOADS[workload].text, name, f"{one.rows:,}", *_cells(one)])
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    cores = " or ".join(sorted({str(one.cores) for one in results.values()}))
    conditions = f"`make peers`, {cores} cores. Seconds are the median, the lowest and the highest run."
    return "\n".join([*lines, "", conditions])


def _cells(one: PeerResult) -> list[str]:
    if not one.seconds:
        return ["failed", *("–" for _ in range(8))]
    counts = (one.windows, one.missing, one.wrong, one.lost_rows, one.peak_mib, one.load)
    return [
        spread(one.seconds, digits=1),
        *(
            f"{one.rows / median(seconds):,.0f}" if one.has_speed else "–"
            for seconds in (one.seconds, one.cpu_seconds)
        ),
        *(f"{each:,}" for each in counts),
    ]


def draw(results: dict[tuple[str, str], PeerResult]) -> None:
    """The picture: rows per second of every engine, on a logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    share = 0.8 / len(NAMES)
    for place, (engine, name) in enumerate(NAMES.items()):
        found = {
            number: results[workload, engine]
            for number, workload in enumerate(WORKLOADS)
            if (workload, engine) in results and results[workload, engine].has_speed
        }
        left = (place - (len(NAMES) - 1) / 2) * share
        speeds = [one.rows / median(one.seconds) for one in found.values()]
        bars = axes.bar([number + left for number in found], speeds, share * 0.92, label=name)
        axes.bar_label(bars, [f"{speed / 1000:,.0f}k" for speed in speeds], padding=2, fontsize=7)
    axes.set_yscale("log")
    axes.set_xticks(range(len(WORKLOADS)), [each.text for each in WORKLOADS.values()], fontsize=8)
    axes.set_ylabel("rows per second (more is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", frameon=False, fontsize=8, ncols=len(NAMES))
    # Nothing that changes from run to run: the same figures give the same file.
    figure.savefig(PICTURE, metadata={"Date": None, "Creator": None})


def write_page() -> None:
    """Replace what lies between the two marks."""
    results = load_results(RESULTS)
    content = table(results)
    if any(one.seconds for one in results.values()):
        draw(results)
        content += f"\n\n![Rows per second of every engine](images/{PICTURE.name})"
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{after}", encoding="utf-8")
