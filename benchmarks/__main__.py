"""`python -m benchmarks [NAME ...]`: run all benchmarks, or those named, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.report import Report

NAMES = (
    "progress",
    "windows",
    "slices",
    "session_state",
    "join",
    "retractions",
    "planning",
    "extraction",
    "ingest_start",
    "streams",
    "cycles",
    "spark_windows",
    "spark_end_to_end",
    "empty_batches",
    "cold_start",
    "breakdown",
    "stage_times",
    "latency",
    "spark_joins",
    "growth",
    "streams_spark",
    "stream_panes",
    "lake_merge_cost",
    "lake_merges",
)
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument(
        "--no-page", action="store_true", help="print only, leave docs/benchmarks.md as it is"
    )
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"unknown benchmark {name!r}, known: {', '.join(NAMES)}")
    report = Report()
    print(report.conditions())
    for name in arguments.names or NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        report.begin(name)
        benchmark.run(report)
    if not arguments.no_page:
        report.write(PAGE)
        print(f"written to {PAGE.relative_to(PAGE.parent.parent)}")


if __name__ == "__main__":
    main()
