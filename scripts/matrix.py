"""`python scripts/matrix.py [VERSION ...]`: try the package on every supported PySpark, and write the table.

For each version: an empty virtual environment, the built wheel without extras, and the first pipeline of
README.md, timed; then the extras, and the tests of the features below. What a version is known not to have
is not tried. The table in docs/operations/compatibility.md is made from the results of the last run of each
version, which are in build/matrix. Ends with 1 if a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Feature:
    """A row of the table: the tests that show a feature, and the first version that can have it."""

    text: str
    tests: tuple[str, ...]
    since: str = "4.0"


FEATURES: Final = (
    Feature("windows, triggers, late rows, retractions, restarts", ("test_runs.py",)),
    Feature("chains and unions", ("test_chains.py",)),
    Feature("joins and cogroups", ("test_joins.py",)),
    Feature("as-of joins, deduplication", ("test_asof_and_deduplicate.py",)),
    Feature("`map_async`", ("test_asynchronous.py",)),
    Feature("`upsert_to`, `upsert_once`", ("test_upsert.py",)),
    Feature("clock, idle inputs, `sw.why`", ("test_live.py", "test_clock.py")),
    Feature("streams as source and sink", ("test_streams.py",)),
    Feature("state of a stopped query", ("test_checkpoints.py",)),
    Feature("private names of Spark", ("test_internals.py",)),
    Feature("`max_events` of a stream", ("test_streams.py::limits",), since="4.2"),
    Feature("`flush=True` with a limited source", ("test_ending.py",), since="4.2"),
    Feature("`slackwater rescale`", ("test_checkpoints.py::rescaled",), since="4.2"),
)


def feature_of(file: str, test: str) -> Feature | None:
    """The feature that a test belongs to: one that names the test comes before one that names its file.

    >>> feature_of("test_streams.py", "test_every_event_across_limits").text
    '`max_events` of a stream'
    >>> feature_of("test_streams.py", "test_a_batch").text
    'streams as source and sink'
    """
    for feature in reversed(FEATURES):
        for pattern in feature.tests:
            where, _, part = pattern.partition("::")
            if where == file and part in test:
                return feature
    return None


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


def constraints() -> str:
    """The pins of the lock without those of PySpark, so that only PySpark differs between the columns."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9._-]+==[^\\\n]+?) \\$", lock, re.MULTILINE)
    return "\n".join(pin for pin in pins if not pin.startswith(("pyspark", "py4j"))) + "\n"


def first_page() -> str:
    """The first pipeline of README.md."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit("README.md has no python block")
    return found[1]


def try_version(version: str, folder: Path, wheel: Path) -> dict[str, Any]:
    """Install one version of PySpark with the wheel, and run the first page and the tests."""
    python = folder / "venv" / "bin" / "python"
    major, minor = version.split(".")
    (folder / "constraints.txt").write_text(constraints())
    uv("venv", "--quiet", "--python", PYTHONS[version], folder / "venv")
    spark = f"pyspark>={version},<{major}.{int(minor) + 1}"
    install = ["pip", "install", "--quiet", "--python", python, "--constraints", folder / "constraints.txt"]
    begun = time.monotonic()
    uv(*install, spark, wheel)
    installed = time.monotonic() - begun
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (folder / "first.py").write_text(first_page())
    begun = time.monotonic()
    printed = checked([python, "first.py"], cwd=folder, env=clean)
    first = time.monotonic() - begun
    uv(*install, spark, f"{wheel}[all]", *TOOLS)
    report = folder / "report.xml"
    names, left_out = selection(version)
    # Older releases of PySpark leave sockets to the garbage collector, so their warnings are no errors here.
    options = ["-q", "-p", "no:cacheprovider", "-W", "default", "-m", "not proof", f"--junit-xml={report}"]
    done = run(
        [python, "-m", "pytest", *options, "-k", left_out, *names],
        cwd=ROOT,
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    (RESULTS / f"{version}.log").write_text(done.stdout)
    found = {
        "python": checked([python, "-c", "import platform; print(platform.python_version())"]).strip(),
        "pyspark": checked([python, "-c", "import pyspark; print(pyspark.__version__)"]).strip(),
        "install_seconds": round(installed),
        "first_row_seconds": round(first, 1),
        "rows": sum(line.startswith("|") for line in printed.splitlines()) - 1,
        "features": counted(report),
    }
    (RESULTS / f"{version}.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def selection(version: str) -> tuple[list[str], str]:
    """The test files for a version, and a pytest expression without the tests that need a newer one.

    >>> selection("4.3")[1], selection("4.1")[1]
    ('', 'not limits and not rescaled')
    """
    files: set[str] = set()
    left_out: list[str] = []
    for feature in FEATURES:
        for file, _, part in (pattern.partition("::") for pattern in feature.tests):
            if number(feature.since) <= number(version):
                files.add(f"{_SPARK_TESTS}/{file}")
            elif part:
                left_out.append(f"not {part}")
    return sorted(files), " and ".join(left_out)


def number(version: str) -> tuple[int, ...]:
    """A version as numbers, which compare as they should."""
    return tuple(int(part) for part in version.split("."))


def counted(report: Path) -> dict[str, list[int]]:
    """The passed tests and all tests by feature."""
    counts: dict[str, list[int]] = {}
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
    ]
    for feature in FEATURES:
        rows.append([feature.text, *(cell(feature, version, results[version]) for version in versions)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(feature: Feature, version: str, result: Mapping[str, Any]) -> str:
    """What the table says about a feature in a version."""
    if number(feature.since) > number(version):
        return f"needs {feature.since}"
    passed, total = result["features"].get(feature.text, (0, 0))
    return f"yes ({total} tests)" if passed == total and total else f"**{passed} of {total} tests**"


def write_page(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table in the documentation."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")


def failures(result: Mapping[str, Any]) -> Iterable[str]:
    """The features with tests that do not pass."""
    return [text for text, (passed, total) in result["features"].items() if passed < total]


def main() -> None:
    """Try the versions, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", default=list(PYTHONS), metavar="VERSION")
    chosen = parser.parse_args().versions
    if unknown := sorted(set(chosen) - set(PYTHONS)):
        sys.exit(f"unknown version {unknown[0]}; supported: {', '.join(PYTHONS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="slackwater-matrix-") as made:
        uv("build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", made, ROOT)
        [wheel] = Path(made).glob("*.whl")
        for version in chosen:
            folder = Path(made) / version
            folder.mkdir()
            result = try_version(version, folder, wheel)
            wrong = failures(result)
            failed |= bool(wrong) or result["rows"] < 1
            said = f"fails: {', '.join(wrong)}" if wrong else "passed"
            sys.stdout.write(f"PySpark {result['pyspark']} on Python {result['python']}: {said}\n")
    results = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    write_page(results)
    sys.exit(failed)


if __name__ == "__main__":
    main()
