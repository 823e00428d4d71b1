"""`python -m benchmarks.nexmark`: compare the queries of all engines with the truth, then time them.

Each query runs in an engine that is started for it. Its first run writes the result, which is compared with
that of Polars; the following runs write to nothing and are timed, from building the query to the end of the
input. The results of the last run of each query and engine are kept in results.json, of which
docs/nexmark.md is made. Ends with 1 if a result of Slackwater is not that of Polars.
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
from benchmarks.nexmark.page import RESULTS, write_page
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


CORES: Final = os.cpu_count() or 1


def write_csv(data: Path, readers: int) -> None:
    """The rows of a generated folder as CSV, below ``csv``: a file for each reader, as Flink reads them.

    Flink assigns files to readers in no particular order, and the watermark is the lowest of all readers. So
    each file has every n-th row: of files one after the other, the rows of some would be late.
    """
    for name in TABLES:
        rows = pl.read_parquet(data / name / "*.parquet")
        (data / "csv" / name).mkdir(parents=True)
        for number in range(readers):
            _write(rows.gather_every(readers, number), data / "csv" / name / f"{number}.csv")
    (data / "csv" / "side_input").mkdir()
    _write(pl.read_parquet(data / "side_input.parquet"), data / "csv" / "side_input" / "rows.csv")


def _write(rows: pl.DataFrame, path: Path) -> None:
    rows.write_csv(path, include_header=False, datetime_format="%Y-%m-%d %H:%M:%S%.3f")


def command(engine: str, query: str, data: Path, output: Path, runs: int) -> list[str]:
    """The command that runs a query on an engine."""
    options = ["--query", query, "--output", str(output), "--runs", str(runs)]
    if engine == "flink":
        cores = ["--cores", str(CORES)]
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


def measure(engine: str, query: str, settings: Settings, data: Path, runs: int) -> Measurement:
    """Run a query on an engine that is started for it, so that its memory holds nothing of other queries."""
    load = round(os.getloadavg()[0], 1)
    measurement = Measurement(query, engine, settings.events, load=load, cores=CORES)
    events = Events.read(data)
    with tempfile.TemporaryDirectory(prefix="slackwater-nexmark-") as name:
        output = Path(name)
        log = Path("build") / "nexmark" / f"{engine}-{query}.log"
        for run in engine_runs(command(engine, query, data, output, runs), log):
            record(measurement, run, output / query, events)
            what = run.error or f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} s of CPU"
            if run.labels["run"] == 0 and run.error is None:
                what += f", {measurement.rows:,} rows"
                what += f", {measurement.missing:,} missing, {measurement.wrong:,} wrong"
            print(f"{engine} {query} run {run.labels['run']}: {what}", flush=True)
    return measurement


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.nexmark", description=__doc__)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES), metavar="QUERY")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=None, help="events in a micro-batch; a tenth of all")
    parser.add_argument("--rate", type=int, default=2_000, help="events per second of event time")
    parser.add_argument("--group", type=int, default=1, help="events are out of order within this many")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each query")
    parser.add_argument("--no-page", action="store_true", help="print only, leave the page as it is")
    arguments = parser.parse_args()
    settings = Settings(arguments.events, rate=arguments.rate, group=arguments.group)
    failed = False
    with tempfile.TemporaryDirectory(prefix="slackwater-nexmark-") as name:
        data = Path(name)
        write(settings, arguments.batch or -(-settings.events // 10), data)
        if "flink" in arguments.engines:
            write_csv(data, CORES)
        for engine in arguments.engines:
            for query in (query for query in arguments.queries if query in ENGINES[engine]):
                one = measure(engine, query, settings, data, arguments.runs)
                failed |= engine == "slackwater" and bool(one.wrong or one.missing or one.error)
                if not arguments.no_page:
                    known = load_measurements(RESULTS)
                    save_measurements(RESULTS, {**known, (one.query, engine): one})
                    write_page()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
