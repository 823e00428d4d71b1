"""Every public name can be listed, imported and type-checked, and costs nothing until it is used."""

from __future__ import annotations

import importlib
import py_compile
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

import slackwater as sw
from slackwater import windows
from tests.structure.public_names import DOCUMENTED_PACKAGES, public_names

HEAVY = {"pyspark", "polars", "pyarrow", "pandas", "numpy", "sqlalchemy", "alembic", "httpx", "pydantic"}
"""Libraries that ``import slackwater`` must not import."""

every_package = pytest.mark.parametrize("package", DOCUMENTED_PACKAGES, ids=lambda package: package.__name__)


@every_package
def test_dir_lists_every_public_name(package: types.ModuleType) -> None:
    assert set(public_names(package)) <= set(dir(package))


@every_package
def test_every_public_name_can_be_imported_and_is_listed_once(package: types.ModuleType) -> None:
    names = public_names(package)
    assert names
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(package, name) is not None


def test_a_star_import_brings_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from slackwater import *", namespace)  # noqa: S102 - a star import is legal only in a module
    assert set(public_names(sw)) <= namespace.keys()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'slackwater' has no attribute 'no_such_name'"):
        getattr(sw, "no_such_name")  # noqa: B009 - mypy knows that it is missing


def test_a_name_is_the_object_in_its_module() -> None:
    assert sw.duration is importlib.import_module("slackwater.time").duration
    assert sw.sum is windows.sum


def test_modules_that_hold_public_names_are_attributes() -> None:
    assert sw.errors.InvalidArgument is sw.InvalidArgument
    assert windows.triggers.every is windows.every


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = "import sys, slackwater, slackwater.windows; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & {name.partition(".")[0] for name in finished.stdout.split()}


@pytest.mark.search
def test_reading_and_writing_rows_in_an_executor_imports_no_job_files() -> None:
    modules = ["sources.adbc_source", "targets.folder_target", "targets.delta_target"]
    modules += ["targets.manifest_target", "targets.delta_objects_target"]
    imports = "; ".join(f"import slackwater.ingest.{name}" for name in modules)
    code = f"import sys; {imports}; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in finished.stdout.split()}
    assert not {"sqlalchemy", "pydantic", "yaml", "alembic", "polars"} & imported


@pytest.mark.search
def test_processes_on_the_driver_that_start_with_every_query_import_little() -> None:
    modules = "slackwater.spark.wire.clock_source, slackwater.spark.runtime.processor"
    code = f"import sys, {modules}; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in finished.stdout.split()}
    assert not {"sqlalchemy", "pandas", "polars"} & imported


def test_plan_is_the_function_also_after_modules_of_that_package_are_imported() -> None:
    planner = importlib.import_module("slackwater.ingest.plan.planner")
    assert importlib.import_module("slackwater.ingest").plan is planner.plan


PACKAGE = """
from typing import TYPE_CHECKING
from slackwater._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from textwrap import dedent as dedent
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, renamed={"unindent": "dedent"})
"""


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with lazy names in a zip archive, as ``--py-files`` distributes it."""
    archive = tmp_path / "names.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_names/__init__.py", PACKAGE)
    monkeypatch.syspath_prepend(str(archive))
    monkeypatch.delitem(sys.modules, "zipped_names", raising=False)
    return importlib.import_module("zipped_names")


def test_lazy_names_work_in_a_zip_archive(zipped: types.ModuleType) -> None:
    assert public_names(zipped) == ["dedent"]
    assert zipped.dedent("  a") == "a"


def test_a_package_without_its_source_is_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "names.py"
    source.write_text(PACKAGE, encoding="utf-8")
    (tmp_path / "compiled_names").mkdir()
    py_compile.compile(str(source), cfile=str(tmp_path / "compiled_names" / "__init__.pyc"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="compiled_names lists its names in its source, which is missing"):
        importlib.import_module("compiled_names")


def test_a_deprecated_name_warns_and_is_not_listed(zipped: types.ModuleType) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"zipped_names\.unindent is deprecated; use zipped_names\.dedent"
    ):
        assert zipped.unindent is zipped.dedent
    assert "unindent" not in public_names(zipped)
    assert "unindent" not in dir(zipped)


@pytest.mark.parametrize("package", [sw, windows], ids=lambda package: package.__name__)
@pytest.mark.parametrize(("old", "new"), [("TimeBoundedJoin", "JoinSpec")])
def test_renamed_public_names_still_work(package: types.ModuleType, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{package.__name__}\.{old} is deprecated"):
        assert getattr(package, old) is getattr(package, new)
    assert old not in public_names(package)
