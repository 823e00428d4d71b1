"""`python scripts/matrix.py [VERSION ...]`: try the package on every supported PySpark, and write the table.

For each version: an empty virtual environment, the built wheel without extras, and the first pipeline of
README.md, timed; then the extras, and the tests of the features below. What a version is known not to have
is not tried. The results are in build/matrix, and with each of them the table in
docs/operations/compatibility.md is written again. What has passed with the same package and the same tests is
not run again, so an interrupted run can be continued; ``--again`` runs everything, and ``--failed`` only what
has not passed, also with a changed package. Ends with 1 if a test fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "build" / "matrix"
PAGE: Final = ROOT / "docs" / "operations" / "compatibility.md"
BEGIN: Final = "<!-- written by make matrix -->"
END: Final = "<!-- end of what make matrix writes -->"
PYTHONS: Final = {"4.0": "3.11", "4.1": "3.12", "4.2": "3.13", "4.3": "3.13"}
"""The Python version on which each PySpark version is tried. `make test` runs on 4.3 and Python 3.11."""
TOOLS: Final = ("pytest", "hypothesis")
"""What the tests need."""
_SPARK_TESTS: Final = "tests/spark"
TOGETHER: Final = 3
"""The number of features whose tests share a Spark session."""


@dataclass(frozen=True)
class Feature:
    """A row of the table: the tests that show a feature, and the first version that can have it."""

    text: str
    tests: tuple[str, ...]
    since: str = "4.0"


FEATURES: Final = (
    Feature(
        "windows of a batch job",
        (
            "test_runs.py::test_a_batch_fires_everything[fixed]",
            "test_runs.py::test_a_batch_fires_everything[sessions that merge and take back]",
        ),
    ),
    Feature(
        "early, on-time and late panes, retractions; a restart",
        ("test_runs.py::test_a_restart_between_two_micro_batches[early, on time, late, retracting]",),
    ),
    Feature("a chain of operators; a restart", ("test_chains.py::test_a_chain_in_micro_batches[3]",)),
    Feature(
        "joins and cogroups",
        (
            "test_joins.py::test_a_cogroup_as_a_batch",
            "test_joins.py::test_a_cogroup_waits_for_the_slower_side",
            "test_joins.py::test_pairs_with_close_event_times",
        ),
    ),
    Feature(
        "`map_async`, and rows for which it fails",
        (
            "test_asynchronous.py::test_map_async_over_a_batch",
            "test_asynchronous.py::test_failed_rows_become_dead_letters_of_a_table_and_are_counted",
        ),
    ),
    Feature(
        "`upsert_to` PostgreSQL, also of repeated batches",
        ("test_upsert.py::test_replayed_batches_are_merged_once[postgresql]",),
    ),
    Feature(
        "clock and idle inputs",
        (
            "test_live.py::test_an_idle_origin_is_excluded_until_it_sends_again",
            "test_live.py::test_the_clock_fires_panes_without_new_rows",
            "test_clock.py::test_a_restart_in_another_session_loses_nothing",
        ),
    ),
    Feature(
        "streams as source and sink",
        (
            "test_streams.py::test_a_repeated_batch_is_identical",
            "test_streams.py::test_a_batch_reads_between_two_cuts",
            "test_streams.py::test_a_query_writes_every_batch_once_also_a_repeated_one",
        ),
    ),
    Feature("state of a stopped query", ("test_checkpoints.py::test_every_operator_of_a_chain_is_listed",)),
    Feature(
        "private names of Spark",
        (
            "test_internals.py::test_the_classes_exist",
            "test_internals.py::test_options_of_streaming_sources_of_both_kinds",
            "test_internals.py::test_schemas_convert_to_arrow_and_back",
        ),
    ),
    Feature(
        "several batches in a run with `availableNow`, then an end",
        (
            "test_clock.py::test_a_run_with_available_now_keeps_the_limits_of_sources",
            "test_ending.py::test_every_row_counts_in_batches_and_then_a_flush",
        ),
    ),
    Feature(
        "`sw.from_kafka`, and records that cannot be parsed",
        ("test_kafka.py::test_partitions_are_origins_and_bad_records_are_located",),
    ),
    Feature(
        "`merge_into` Delta Lake, Iceberg and Parquet",
        ("test_lake_merge.py::test_a_stream_with_retractions",),
    ),
    Feature(
        "`append_to` Delta Lake and Parquet",
        (
            "test_file_append.py::test_a_stream_with_retractions",
            "test_file_append.py::test_rows_without_duplicates_and_a_stream_that_reads_the_folder",
        ),
    ),
    Feature(
        "dates, decimals and structs in results",
        (
            "test_row_codec.py::test_rows_are_equal_as_plain_columns_and_as_payloads",
            "test_row_codec.py::test_structs_are_equal_as_plain_columns_and_as_payloads",
        ),
    ),
    Feature("Spark Connect", ("test_connect.py::test_the_api_over_spark_connect",), since="4.1"),
    Feature(
        "`max_events` of a stream",
        ("test_streams.py::test_every_event_is_read_once_across_limits_restarts_and_scaling",),
        since="4.2",
    ),
    Feature(
        "`flush=True` with a limited source",
        ("test_ending.py::test_a_limited_source_is_read_to_its_end_in_one_run",),
        since="4.2",
    ),
    Feature(
        "`slackwater rescale`",
        ("test_checkpoints.py::test_a_query_changes_is_inspected_and_rescaled",),
        since="4.2",
    ),
)


def feature_of(file: str, test: str) -> Feature | None:
    """The feature that a test shows, by the file and the name of the test with its parameters.

    >>> feature_of("test_joins.py", "test_pairs_with_close_event_times[inner]").text
    'joins and cogroups'
    """
    names = {f"{file}::{test}", f"{file}::{test.partition('[')[0]}"}
    return next((feature for feature in FEATURES if names & set(feature.tests)), None)


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed."""
    return subprocess.run([str(part) for part in command], text=True, check=False, **options)


def checked(command: Sequence[str | Path], **options: Any) -> str:
    """Run a program; end with its output if it fails."""
    done = run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def uv(*arguments: str | Path) -> str:
    """Run uv, which is in the lock."""
    return checked([sys.executable, "-m", "uv", *arguments])


def interpreter(version: str) -> str:
    """A Python of this version: on the PATH, of pyenv, or what uv finds or downloads."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *(str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for name in candidates:
        # a shim of pyenv is on the PATH also if no version is selected for it
        if shutil.which(name) and run([name, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return name
    return version


def constraints(but: tuple[str, ...] = ("pyspark", "py4j")) -> str:
    """The pins of the lock without those of PySpark, so that only PySpark differs between the columns."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9._-]+==[^\\\n]+?) \\$", lock, re.MULTILINE)
    return "\n".join(pin for pin in pins if not pin.startswith(but)) + "\n"


def first_page() -> str:
    """The first pipeline of README.md."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit("README.md has no python block")
    return found[1]


def digest_of(wheel: Path) -> str:
    """A checksum of what a result depends on: the package, the first page, the pins and the tests."""
    digest = hashlib.sha256(wheel.read_bytes() + first_page().encode() + constraints().encode())
    for feature in FEATURES:
        for test in feature.tests:
            digest.update(test.encode() + (ROOT / _SPARK_TESTS / test.partition("::")[0]).read_bytes())
    return digest.hexdigest()


class Environment:
    """An empty virtual environment with one version of PySpark and the wheel without extras."""

    def __init__(self, version: str, folder: Path, wheel: Path) -> None:
        folder.mkdir()
        major, minor = version.split(".")
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.spark = f"pyspark>={version},<{major}.{int(minor) + 1}"
        self.variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        (folder / "constraints.txt").write_text(constraints())
        uv("venv", "--quiet", "--python", interpreter(PYTHONS[version]), folder / "venv")
        self.install(wheel)

    def install(self, *packages: str | Path) -> None:
        """Install packages, with this version of PySpark."""
        pins = self.folder / "constraints.txt"
        uv("pip", "install", "--quiet", "--python", self.python, "--constraints", pins, self.spark, *packages)

    def first_page(self) -> dict[str, Any]:
        """Run the first pipeline of README.md twice: its rows, and how long it took to show them.

        The first run also compiles all packages to bytecode and writes the archive of Java classes.
        """
        (self.folder / "first.py").write_text(first_page())
        seconds, rows = [], 0
        for _ in range(2):
            begun = time.monotonic()
            printed = checked([self.python, "first.py"], cwd=self.folder, env=self.variables)
            seconds.append(round(time.monotonic() - begun, 1))
            rows = sum(line.startswith("|") for line in printed.splitlines()) - 1
        return {"first_row_seconds": seconds[0], "next_row_seconds": seconds[1], "rows": rows}

    def run_tests(self, features: Sequence[Feature], log: Path) -> dict[str, list[int]]:
        """Run the tests of some features, and append what pytest prints to a file."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        names = [f"{_SPARK_TESTS}/{test}" for feature in features for test in feature.tests]
        # Older releases of PySpark leave sockets to the garbage collector, so warnings are no errors here.
        options = ["-q", "-p", "no:cacheprovider", "-W", "default", f"--junit-xml={report}"]
        with log.open("a") as output:
            command: list[str | Path] = [self.python, "-m", "pytest", *options, *names]
            run(command, cwd=ROOT, env=self.variables, stdout=output, stderr=subprocess.STDOUT)
        return counted(report)

    def version_of(self, module: str) -> str:
        """The version of Python or of a package."""
        text = "platform.python_version()" if module == "platform" else f"{module}.__version__"
        return checked([self.python, "-c", f"import {module}; print({text})"]).strip()


def try_version(version: str, folder: Path, wheel: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    """Install one version of PySpark with the wheel, and run the first page and the tests.

    ``before`` is the result of an earlier run: what has passed in it is not run again. The result is stored
    whenever the tests of a few features have ended.
    """
    environment = Environment(version, folder, wheel)
    counts = dict(before.get("features", {}))
    tried = [feature for feature in applicable(version) if not fully(counts.get(feature.text, (0, 0)))]
    result = {
        **before,
        "python": environment.version_of("platform"),
        "pyspark": environment.version_of("pyspark"),
        **({} if before else environment.first_page()),
        "features": counts,
        "digest": digest_of(wheel),
    }
    environment.install(f"slackwater[all] @ {wheel.as_uri()}", *TOOLS)
    log = RESULTS / f"{version}.log"
    log.write_text("")
    for start in range(0, len(tried), TOGETHER):
        counts |= environment.run_tests(tried[start : start + TOGETHER], log)
        store(version, result)
    return result


def number(version: str) -> tuple[int, ...]:
    """A version as numbers, which compare as they should."""
    return tuple(int(part) for part in version.split("."))


def counted(report: Path) -> dict[str, list[int]]:
    """The passed tests and all tests by feature."""
    counts: dict[str, list[int]] = {}
    if not report.exists():  # pytest was killed
        return counts
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        file = case.get("classname", "").split(".")[-1] + ".py"
        feature = feature_of(file, case.get("name", ""))
        if feature is not None:
            passed, total = counts.get(feature.text, [0, 0])
            bad = any(each.tag in {"failure", "error", "skipped"} for each in case)
            counts[feature.text] = [passed + (not bad), total + 1]
    return counts


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The results in Markdown, a column for each version."""
    versions = sorted(results)
    columns = [results[version] for version in versions]
    rows = [
        ["", *(f"PySpark {each['pyspark']}" for each in columns)],
        ["---"] * (len(columns) + 1),
        ["tried on Python", *(each["python"] for each in columns)],
        ["rows of the [first page](../index.md)", *(str(each["rows"]) for each in columns)],
        ["seconds to its rows", *(f"{each['first_row_seconds']:g}" for each in columns)],
        ["seconds when it runs again", *(f"{each.get('next_row_seconds', '–')}" for each in columns)],
    ]
    rows += [
        [feature.text, *(cell(feature, version, results[version]) for version in versions)]
        for feature in FEATURES
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(feature: Feature, version: str, result: Mapping[str, Any]) -> str:
    """What the table says about a feature in a version."""
    if number(feature.since) > number(version):
        return f"needs {feature.since}"
    passed, total = count = result["features"].get(feature.text, (0, 0))
    tests = "1 test" if total == 1 else f"{total} tests"
    if not total:
        return "not run"
    return f"yes ({tests})" if fully(count) else f"**{passed} of {tests}**"


def write_page(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table in the documentation."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")


def applicable(version: str) -> list[Feature]:
    """The features that a version can have."""
    return [feature for feature in FEATURES if number(feature.since) <= number(version)]


def failures(version: str, result: Mapping[str, Any]) -> list[str]:
    """The features with tests that do not pass, or were not run."""
    counts = result.get("features", {})
    wrong = [each.text for each in applicable(version) if not fully(counts.get(each.text, (0, 0)))]
    return wrong if result.get("rows", 0) > 0 else ["the first page", *wrong]


def fully(count: Sequence[int]) -> bool:
    """Whether all tests have passed, and there is one.

    >>> fully((2, 2)), fully((1, 2)), fully((0, 0))
    (True, False, False)
    """
    passed, total = count
    return passed == total > 0


def stored(version: str) -> dict[str, Any]:
    """The result of the last run of a version; empty if there was none."""
    path = RESULTS / f"{version}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def store(version: str, result: Mapping[str, Any]) -> None:
    """Store the result of a version, and write the table again."""
    (RESULTS / f"{version}.json").write_text(json.dumps(result, indent=2) + "\n")
    write_page({path.stem: stored(path.stem) for path in RESULTS.glob("*.json")})


def main() -> None:
    """Try the versions, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--again", action="store_true", help="try also versions that have passed")
    parser.add_argument("--failed", action="store_true", help="run only what has not passed")
    parser.add_argument("--times", action="store_true", help="run the first page only, and store its time")
    options = parser.parse_args()
    chosen = options.versions or list(PYTHONS)
    if unknown := sorted(set(chosen) - set(PYTHONS)):
        sys.exit(f"unknown version {unknown[0]}; supported: {', '.join(PYTHONS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="slackwater-matrix-") as made:
        uv("build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", made, ROOT)
        [wheel] = Path(made).glob("*.whl")
        for version in chosen:
            result, folder = stored(version), Path(made) / version
            same = result.get("digest") == digest_of(wheel)
            if options.times and result:
                result |= Environment(version, folder, wheel).first_page()
            elif options.again or not same or failures(version, result):
                go_on = (same or options.failed) and not options.again
                result = try_version(version, folder, wheel, result if go_on else {})
            shutil.rmtree(folder, ignore_errors=True)  # a gigabyte each
            store(version, result)
            wrong = failures(version, result)
            failed |= bool(wrong)
            said = f"fails: {', '.join(wrong)}" if wrong else "passed"
            sys.stdout.write(f"PySpark {result['pyspark']} on Python {result['python']}: {said}\n")
            sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()
