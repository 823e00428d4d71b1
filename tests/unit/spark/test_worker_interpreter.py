"""The script that starts Spark's Python processes without the archives of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from slackwater.spark import worker_interpreter as module
from slackwater.spark.internals import path_archives
from slackwater.spark.worker_interpreter import worker_interpreter

ASK = "import pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__, *sys.argv[1:], *sys.path, sep='\\n')"


def answer(script: str, path: str | None) -> list[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        variables["PYTHONPATH"] = path
    ran = subprocess.run([script, "-c", ASK, "a b", "c'd"], capture_output=True, check=True, env=variables)
    return ran.stdout.decode().splitlines()


def test_the_archives_exist() -> None:
    first, second = path_archives()
    assert first.name == "pyspark.zip"
    assert first.is_file()
    assert second.is_file()


@pytest.mark.search
def test_workers_import_the_installed_packages(tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    script = worker_interpreter(folder)
    assert Path(script).parent == folder
    archives = [str(one) for one in path_archives()]
    found, gateway, *rest = answer(script, os.pathsep.join([*archives, "/spark/core.jar", "/my/modules"]))
    assert found == pyspark.__file__
    assert Path(gateway).parents[1] == Path(pyspark.__file__).parents[1]
    assert rest[:2] == ["a b", "c'd"], "arguments are passed on unchanged"
    assert rest.count("/my/modules") == rest.count("/spark/core.jar") == 1
    assert not set(archives) & set(rest)
    assert worker_interpreter(folder) == script, "it is written once"


@pytest.mark.search
@pytest.mark.parametrize("path", [None, "", "/my/modules", "/spark/other.zip:/my/modules"])
def test_another_path_is_left_alone(tmp_path: Path, path: str | None) -> None:
    rest = answer(worker_interpreter(tmp_path), path)
    assert [one for one in (path or "").split(os.pathsep) if one and one not in rest] == []


def test_without_an_installed_spark_of_the_same_folder_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "spark_home", lambda: Path(tmp_path / "spark"))
    assert worker_interpreter(tmp_path) == sys.executable
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert worker_interpreter(tmp_path) == sys.executable


@pytest.mark.parametrize(
    ("content", "bits"), [(b"#!/bin/sh\nexit 1\n", 0o700), (None, 0o720), (None, 0o702)], ids=str
)
def test_a_script_that_another_user_could_have_written_is_replaced(
    tmp_path: Path, content: bytes | None, bits: int
) -> None:
    script = Path(worker_interpreter(tmp_path))
    whole = script.read_bytes()
    script.write_bytes(content or whole)
    script.chmod(bits)
    assert worker_interpreter(tmp_path) == str(script)
    assert script.read_bytes() == whole
    assert script.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert worker_interpreter(tmp_path / "file") == sys.executable


def test_scripts_of_other_interpreters_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = worker_interpreter(tmp_path)
    monkeypatch.setattr(sys, "executable", "/another/python3")
    second = worker_interpreter(tmp_path)
    assert first != second
    assert "/another/python3" in Path(second).read_text()
    assert sorted(map(str, tmp_path.iterdir())) == sorted([first, second])
