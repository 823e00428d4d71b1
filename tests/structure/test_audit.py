"""`scripts/audit.py` reports advisories and versions that were not looked up, and says what was checked."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


audit = load()
LOCK = """
httpx==0.28.1 \\
    --hash=sha256:00
pandas==2.3.3 ; python_full_version < '3.12' \\
    --hash=sha256:01
"""
HTTPX, PANDAS = audit.Package("httpx", "0.28.1"), audit.Package("pandas", "2.3.3")


def index(answers: Mapping[str, Any]) -> Any:
    return answers.get


def test_the_pins_are_read_from_the_lock() -> None:
    assert audit.pinned(LOCK) == [HTTPX, PANDAS]


def test_an_advisory_is_a_finding_unless_it_is_accepted() -> None:
    known = audit.Package("httpx", "0.28.1", "2026-01-01", ("GHSA-1",))
    (finding,) = audit.findings([HTTPX], audit.Record({known.pin: known}))
    assert "httpx==0.28.1 has the advisory GHSA-1" in finding
    assert audit.findings([HTTPX], audit.Record({known.pin: known}, {"GHSA-1": "not used"})) == []


def test_a_version_that_was_not_looked_up_is_a_finding() -> None:
    older = audit.Package("httpx", "0.28.0", "2026-01-01", ())
    (finding,) = audit.findings([HTTPX], audit.Record({older.pin: older}))
    assert "httpx==0.28.1 is not in the record" in finding


def test_the_entry_of_the_version_is_used_and_withdrawn_advisories_are_not() -> None:
    entries = [{"id": "GHSA-2", "withdrawn": None}, {"id": "GHSA-1", "withdrawn": "2026-01-01"}]
    found = audit.look_up(HTTPX, index({"httpx/0.28.1/json": {"vulnerabilities": entries}}), "2026-01-02")
    assert found.advisories == ("GHSA-2",)


@pytest.mark.parametrize(("newest", "advisories"), [("0.28.1", ()), ("0.29.0", None)])
def test_the_newest_entry_is_used_only_for_the_newest_version(
    newest: str, advisories: tuple[str, ...] | None
) -> None:
    answers = {"httpx/json": {"info": {"version": newest}, "vulnerabilities": []}}
    assert audit.look_up(HTTPX, index(answers), "2026-01-02").advisories == advisories


def test_the_summary_names_what_was_not_checked() -> None:
    checked = audit.Package("httpx", "0.28.1", "2026-01-01", ())
    unknown = audit.Package("pandas", "2.3.3", "2026-01-01", None)
    record = audit.Record({one.pin: one for one in (checked, unknown)})
    text = audit.summary([HTTPX, PANDAS], record)
    assert text.startswith("1 package of requirements.lock was looked up (2026-01-01)")
    assert text.endswith("not known to the index: pandas==2.3.3")


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = audit.Package("httpx", "0.28.1", "2026-01-01", ("GHSA-1",))
    unknown = audit.Package("pandas", "2.3.3", "2026-01-01", None)
    record = audit.Record({one.pin: one for one in (known, unknown)}, {"GHSA-1": "not used"})
    record.save(tmp_path / "record.json")
    assert audit.Record.load(tmp_path / "record.json") == record


def test_the_lock_of_this_project_has_no_findings() -> None:
    packages = audit.pinned(audit.LOCK.read_text(encoding="utf-8"))
    assert len(packages) > 50
    assert audit.findings(packages, audit.Record.load(audit.RECORD)) == []


@pytest.mark.search
def test_a_secret_in_a_file_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "settings.py"
    planted.write_text('key = "AKIA' + 'Z7QWERTY56UIOPAS"\n', encoding="ascii")
    hook = [sys.executable, "-m", "detect_secrets.pre_commit_hook"]
    baseline = ["--baseline", str(ROOT / "security" / "secrets.json")]
    found = subprocess.run(
        [*hook, *baseline, str(planted)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "AWS Access Key" in found.stdout
