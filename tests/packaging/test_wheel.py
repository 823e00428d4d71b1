"""The package as users get it: built, installed in an empty environment, run from another folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

from scripts.matrix import constraints, first_page
from tests.cluster.standalone import running_cluster
from tests.support.programs import ROOT

DOORS: Final = {
    "sw.Streams": ("sqlalchemy", "streams"),
    "sw.read_stream": ("sqlalchemy", "streams"),
    "from slackwater.streams.spark.data_source import register": ("sqlalchemy", "streams"),
    "sw.upsert_to": ("sqlalchemy", "sql"),
    "sw.dead_letters": ("sqlalchemy", "sql"),
    "sw.open_monitor": ("sqlalchemy", "sql"),
    "sw.session(monitor='sqlite:///a.db')": ("sqlalchemy", "sql"),
    "sw.advise('orders', store='sqlite:///a.db')": ("sqlalchemy", "sql"),
    "sw.session(remote='local[1]')": ("grpc", "connect"),
    "import slackwater.ingest": ("sqlalchemy", "ingest"),
    "from slackwater.ingest.runner import run": ("sqlalchemy", "ingest"),
    "import slackwater.simulation": ("sqlalchemy", "ingest"),
    "sw.RunningConsole": ("sqlalchemy", "ui"),
    "sw.ui(None)": ("sqlalchemy", "ui"),
    "from slackwater.plot.examples import example\n"
    "from slackwater.plot import save_picture\n"
    "save_picture(example('panes'), 'never.svg', value='total')": ("matplotlib", "plot"),
}
"""What a user may write, with the package that is missing and the extra that has it."""

TRY_DOORS: Final = """
import json, sys
import slackwater as sw
said = {}
for line in json.load(sys.stdin):
    try:
        exec(line)
    except sw.MissingExtra as error:
        said[line] = str(error)
json.dump(said, sys.stdout)
"""

AFTER_THE_FIRST_PAGE: Final = """
try:
    panes.upsert_to("sqlite:///a.db", "totals", create=True)
except sw.MissingExtra as error:
    print(error)
"""

ON_A_CLUSTER: Final = """
import sys
import slackwater as sw

folder = sys.argv[1]
spark = sw.session(partitions=2, config={"spark.sql.session.timeZone": "UTC"})
df = spark.readStream.schema("key string, at timestamp").json(f"{folder}/in")
panes = (
    sw.stream(df, event_time="at", watermark=sw.lag("5 seconds"))
    .key_by("key")
    .window(sw.fixed("10 seconds"))
    .agg(rows=sw.count())
)
writer = panes.to_df(flush=True).writeStream.option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start(f"{folder}/out", format="parquet").awaitTermination()
rows = spark.read.parquet(f"{folder}/out").orderBy("key", "window.start")
print("home", sw.__file__)
print("rows", [(row["key"], row["rows"]) for row in rows.collect()])
"""


def clean_environment(**more: str) -> dict[str, str]:
    """The variables of this process without the paths by which it finds the repository."""
    hidden = {"PYTHONPATH", "SPARK_HOME", "SLACKWATER_STORE"}
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **more}


def said(*command: str | Path, folder: Path, given: str = "", code: int = 0, **variables: str) -> str:
    """What a program prints to both outputs when it runs outside the repository."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, input=given, env=clean_environment(**variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout


def build(folder: Path) -> Path:
    """The wheel; the build backend is in the lock."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder / "dist")]
    said(sys.executable, "-m", "pip", "wheel", "--quiet", *options, ROOT, folder=folder)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


@pytest.mark.spark
@pytest.mark.proof
def test_the_wheel_runs_alone_and_on_a_cluster_that_does_not_have_it(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    python = programs / "python"
    (tmp_path / "pins.txt").write_text(constraints(but=()))
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    said(*pip, "install", "--constraint", "pins.txt", wheel, folder=tmp_path)

    message = 'typer is not installed; run: pip install "slackwater[cli]"'
    assert message in said(programs / "slackwater", "--help", folder=tmp_path, code=1)
    found = json.loads(said(python, "-c", TRY_DOORS, folder=tmp_path, given=json.dumps(list(DOORS))))
    assert found == {
        line: f'{package} is not installed; run: pip install "slackwater[{extra}]"'
        for line, (package, extra) in DOORS.items()
    }

    (tmp_path / "first.py").write_text(first_page() + AFTER_THE_FIRST_PAGE)
    printed = said(python, "first.py", folder=tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1].strip() in printed
    assert 'sqlalchemy is not installed; run: pip install "slackwater[sql]"' in printed

    said(*pip, "uninstall", "--yes", "slackwater", folder=tmp_path)
    said(python, "-c", "import slackwater", folder=tmp_path, code=1)
    check_on_a_cluster(wheel, programs, tmp_path)


def check_on_a_cluster(wheel: Path, programs: Path, folder: Path) -> None:
    """Ship the wheel with ``--py-files``: Spark takes archives, and a wheel is one with another suffix."""
    shipped = folder / "slackwater.zip"
    shutil.copy(wheel, shipped)
    (folder / "in").mkdir()
    seconds = [("a", 1), ("a", 4), ("b", 2), ("a", 12)]
    lines = [json.dumps({"key": key, "at": f"2024-05-01T12:00:{at:02}Z"}) for key, at in seconds]
    (folder / "in" / "0.json").write_text("\n".join(lines))
    (folder / "job.py").write_text(ON_A_CLUSTER)
    with running_cluster(folder, environment={"PYTHONPATH": ""}) as cluster:
        printed = said(
            programs / "spark-submit", "--master", cluster.url, "--py-files", shipped, "job.py", folder,
            folder=folder, PYSPARK_PYTHON=str(programs / "python"),
        )  # fmt: skip
    [home] = re.findall(r"^home (.*)$", printed, re.MULTILINE)
    assert "slackwater.zip" in home
    assert "rows [('a', 2), ('a', 1), ('b', 1)]" in printed
