"""`python -m benchmarks.peers`: windows of several engines over the same rows, compared and timed.

Each run is a new process in the environment of its engine. Its time begins when the engine has been imported,
so that it includes the start of a JVM or a cluster, and ends with the input. The results of the last run of
each engine are kept in results.json, of which docs/peers.md is made. A row of the truth that an engine did
not return counts as missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from benchmarks.engine_process import engine_runs
from benchmarks.environments import python_of
from benchmarks.peers.page import PAGE, RESULTS, PeerResult, load_results, save_results, write_page
from benchmarks.peers.workloads import COLUMNS, LAG, WORKLOADS, Workload

ENGINES: Final = {
    "slackwater": ("spark_engine", None),
    "spark": ("spark_engine", None),
    "flink": ("flink_engine", "flink"),
    "bytewax": ("bytewax_engine", "bytewax"),
    "pathway": ("pathway_engine", "pathway"),
    "quix": ("quix_engine", "quix"),
}
"""The module of each engine, and its environment: this one for None."""
ROWS: Final = 10_000_000
FEWER_ROWS: Final = {
    **dict.fromkeys((("spark", name) for name in WORKLOADS), 2_000_000),
    ("bytewax", "tumbling"): 200_000,
    ("bytewax", "sliding"): 100_000,
    ("bytewax", "sessions"): 200_000,
    ("pathway", "tumbling"): 2_000_000,
    ("pathway", "sliding"): 2_000_000,
    ("pathway", "sessions"): 200_000,
    **dict.fromkeys((("quix", name) for name in WORKLOADS), 200_000),
}
"""Where an engine needs more than two minutes or 10 GiB of memory for `ROWS`, it gets fewer."""
RATE: Final = 10_000
"""Bids per second of event time."""
START: Final = 1_704_067_200_000
FILES: Final = 10
CORES: Final = os.cpu_count() or 1


def bids(rows: int, keys: int, rate: int = RATE, seed: int = 7) -> pl.DataFrame:
    """Seeded bids, each at most five seconds behind the latest before it, in whole milliseconds."""
    random = np.random.default_rng(seed)
    arrival = START + np.arange(rows, dtype=np.int64) * 1_000 // rate
    return pl.DataFrame(
        {
            "auction": random.integers(0, keys, rows),
            "price": random.integers(1, 10_000, rows),
            "millis": arrival + LAG - random.integers(0, LAG, rows),
        }
    )


def write(rows: pl.DataFrame, folder: Path) -> None:
    """Write the same rows as Parquet, as CSV and as CSV with a header, in several files each."""
    for name in ("parquet", "csv_with_header"):
        (folder / name).mkdir(parents=True)
    write_for_flink(rows, folder / "csv")
    size = -(-rows.height // FILES)
    for number, part in enumerate(rows.iter_slices(size)):
        path = folder / "parquet" / f"{number:03}.parquet"
        part.write_parquet(path, row_group_size=-(-part.height // 2))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        part.write_csv(folder / "csv_with_header" / f"{number:03}.csv")


def write_for_flink(rows: pl.DataFrame, folder: Path) -> None:
    """Write rows as CSV without a header, a file per reader with every n-th row.

    Flink assigns files to readers in no particular order, and the watermark is the lowest of all readers.
    """
    folder.mkdir()
    for number in range(CORES):
        part = rows.gather_every(CORES, number)
        part.write_csv(folder / f"{number}.csv", include_header=False)


def truth(rows: pl.DataFrame, window: Workload) -> pl.DataFrame:
    """The result by Polars, over all rows at once.

    >>> truth(bids(1_000, 10), WORKLOADS["tumbling"])["bids"].sum()
    1000
    """
    values = {"bids": pl.len().cast(pl.Int64), "total": pl.col("price").sum(), "best": pl.col("price").max()}
    if window.sessions:
        ordered = rows.sort("auction", "millis")
        gap = (pl.col("millis").diff().over("auction") > window.size).fill_null(value=True)
        numbered = ordered.with_columns(session=gap.cum_sum().over("auction"))
        sessions = numbered.group_by("auction", "session").agg(start=pl.col("millis").min(), **values)
        return sessions.select(COLUMNS)
    every = window.every or window.size
    starts = pl.col("millis") // every * every
    shifted = [rows.with_columns(start=starts - back) for back in range(0, window.size, every)]
    return pl.concat(shifted).group_by("auction", "start").agg(**values).select(COLUMNS)


def read(output: Path) -> pl.DataFrame:
    """The rows that an engine wrote."""
    files = [
        path
        for path in sorted(output.rglob("*"))
        if path.is_file() and not path.name.startswith((".", "_")) and path.stat().st_size
        if path.suffix == ".csv" or path.name.startswith("part-")
    ]
    schema = dict.fromkeys(COLUMNS, pl.Int64)
    frames = [pl.read_csv(path, has_header=False, schema=schema) for path in files]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def run(engine: str, name: str, data: Path, expected: pl.DataFrame, rows: int) -> PeerResult:
    """Run a workload on an engine, once."""
    module, environment = ENGINES[engine]
    python = sys.executable if environment is None else str(python_of(environment))
    output = Path(tempfile.mkdtemp(prefix="slackwater-peers-"))
    options = ["--data", str(data), "--output", str(output), "--cores", str(CORES)]
    command = [python, "-m", f"benchmarks.peers.{module}", "--workload", name, *options]
    load = round(os.getloadavg()[0], 1)
    log = Path("build") / "peers" / f"{engine}-{name}.log"
    (only,) = engine_runs(command, log, {"ENGINE": engine})
    peak = only.peak_bytes >> 20
    result = PeerResult(engine, name, rows, load=load, cores=CORES, error=only.error or "", peak_mib=peak)
    if only.error is None:
        found = read(output)
        result.seconds.append(round(only.seconds, 2))
        result.cpu_seconds.append(round(only.cpu_seconds, 2))
        right = expected.join(found, on=COLUMNS, how="semi").height
        result.windows, result.missing = expected.height, expected.height - right
        # A right row that is returned twice is wrong once.
        result.wrong = found.height - found.unique().join(expected, on=COLUMNS, how="semi").height
        result.lost_rows = int(expected["bids"].sum()) - int(found["bids"].sum())
    shutil.rmtree(output)
    return result


def compare(number: int, jobs: Mapping[str, Sequence[str]], arguments: argparse.Namespace) -> None:
    """Run workloads on the engines of each, with so many rows, and keep the results."""
    with tempfile.TemporaryDirectory(prefix="slackwater-peers-") as folder:
        data = Path(folder)
        rows = bids(number, arguments.keys, arguments.rate)
        write(rows, data)
        for name, engines in jobs.items():
            expected = truth(rows, WORKLOADS[name])
            for engine in engines:
                runs = [run(engine, name, data, expected, number) for _ in range(arguments.runs)]
                result = runs[0].with_runs(runs[1:])
                print(result, flush=True)
                if not arguments.no_page:
                    save_results(RESULTS, {**load_results(RESULTS), (name, engine): result})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rows", type=int, help=f"of every engine; default: {ROWS:,}, fewer for some")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=RATE, help="bids per second of event time")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-page", action="store_true", help="print only, leave the page as it is")
    arguments = parser.parse_args()
    by_rows: dict[int, dict[str, list[str]]] = {}
    for name, engine in product(arguments.workloads, arguments.engines):
        number = arguments.rows or FEWER_ROWS.get((engine, name), ROWS)
        by_rows.setdefault(number, {}).setdefault(name, []).append(engine)
    for number, jobs in by_rows.items():
        compare(number, jobs, arguments)
    if not arguments.no_page:
        write_page()
        print(f"written to {PAGE.relative_to(PAGE.parents[1])}")


if __name__ == "__main__":
    main()
