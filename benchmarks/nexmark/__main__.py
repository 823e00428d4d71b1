"""`python -m benchmarks.nexmark`: compare the queries of all engines with the truth, then time them.

Each engine runs in a process of its own. For every query, the first run writes its result, which is compared
with that of Polars; the following runs write to nothing and are timed, from building the query to the end of
the input. The results of the last run of each query and engine are kept in results.json, of which
docs/nexmark.md is made.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.engine_process import EngineRun, engine_runs
from benchmarks.environments import python_of
from benchmarks.nexmark import flink_queries, slackwater_queries, spark_queries
from benchmarks.nexmark.generator import TABLES, Settings, write
from benchmarks.nexmark.page import PAGE, RESULTS, write_page
from benchmarks.nexmark.results import (
    Measurement,
    final_result,
    load_measurements,
    save_measurements,
)
from benchmarks.nexmark.truth import QUERIES, Events, compare

ENGINES: Final = {
    "slackwater": slackwater_queries.QUERIES,
    "spark": spark_queries.QUERIES,
    "flink": flink_queries.QUERIES,
}


def write_csv(data: Path) -> None:
    """The files of a generated folder as CSV, below ``csv``, as Flink reads them."""
    for name in TABLES:
        (data / "csv" / name).mkdir(parents=True)
        for path in sorted((data / name).iterdir()):
            _as_csv(path, data / "csv" / name / f"{path.stem}.csv")
    (data / "csv" / "side_input").mkdir()
    _as_csv(data / "side_input.parquet", data / "csv" / "side_input" / "rows.csv")


def _as_csv(source: Path, target: Path) -> None:
    pl.read_parquet(source).write_csv(target, include_header=False, datetime_format="%Y-%m-%d %H:%M:%S%.3f")


def command(engine: str, queries: list[str], data: Path, output: Path, runs: int) -> list[str]:
    """The command that runs queries on an engine."""
    options = ["--queries", *queries, "--output", str(output), "--runs", str(runs)]
    if engine == "flink":
        cores = ["--cores", str(os.cpu_count() or 1)]
        return [
            str(python_of("flink")),
            "-m",
            "benchmarks.nexmark.flink_engine",
            "--data",
            str(data / "csv"),
            *options,
            *cores,
        ]
    module = [sys.executable, "-m", "benchmarks.nexmark.spark_engine", "--engine", engine]
    return [*module, "--data", str(data), *options]


def record(measurement: Measurement, run: EngineRun, output: Path, events: Events) -> None:
    """Add a run to a measurement: compare the first one, time the others."""
    measurement.peak_mib = max(measurement.peak_mib, run.peak_bytes >> 20)
    if run.error is not None:
        measurement.error = run.error
    elif run.labels["run"] == 0:
        result = final_result(measurement.engine, measurement.query, output, events)
        compared = compare(measurement.query, events, result)
        measurement.rows, measurement.missing = compared.rows, compared.missing
        measurement.wrong = compared.wrong
        if compared.wrong:
            print(f"    wrong row of {measurement.engine}: {compared.example}")
    else:
        measurement.seconds.append(round(run.seconds, 3))
        measurement.cpu_seconds.append(round(run.cpu_seconds, 2))


def measure(
    engine: str, queries: list[str], settings: Settings, data: Path, runs: int
) -> dict[tuple[str, str], Measurement]:
    """Run queries on an engine."""
    load = round(os.getloadavg()[0], 1)
    measurements = {
        (query, engine): Measurement(query, engine, settings.events, load=load) for query in queries
    }
    events = Events.read(data)
    with tempfile.TemporaryDirectory(prefix="slackwater-nexmark-") as name:
        output = Path(name)
        log = Path("build") / "nexmark" / f"{engine}.log"
        for run in engine_runs(command(engine, queries, data, output, runs), log):
            query = str(run.labels["query"])
            measurement = measurements[query, engine]
            record(measurement, run, output / query, events)
            what = run.error or f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} s of CPU"
            if run.labels["run"] == 0 and run.error is None:
                what += f", {measurement.rows:,} rows"
                what += f", {measurement.missing:,} missing, {measurement.wrong:,} wrong"
            print(f"{engine} {query} run {run.labels['run']}: {what}", flush=True)
    return measurements


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.nexmark", description=__doc__)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES), metavar="QUERY")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=None, help="events in a micro-batch; a tenth of all")
    parser.add_argument("--group", type=int, default=1, help="events are out of order within this many")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each query")
    parser.add_argument("--no-page", action="store_true", help="print only, leave the page as it is")
    arguments = parser.parse_args()
    settings = Settings(arguments.events, group=arguments.group)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="slackwater-nexmark-") as name:
        data = Path(name)
        write(settings, arguments.batch or -(-settings.events // 10), data)
        if "flink" in arguments.engines:
            write_csv(data)
        for engine in arguments.engines:
            chosen = [query for query in arguments.queries if query in ENGINES[engine]]
            if not chosen:
                continue
            measured = measure(engine, chosen, settings, data, arguments.runs)
            wrong += sum(one.wrong for one in measured.values())
            if not arguments.no_page:
                save_measurements(RESULTS, {**load_measurements(RESULTS), **measured})
    if not arguments.no_page:
        write_page()
        print(f"written to {PAGE.relative_to(PAGE.parents[1])}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
