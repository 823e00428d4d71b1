"""The page's files: vendored libraries as they were published, and nothing from another host."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from slackwater.ui.server import STATIC

VENDOR = STATIC / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
PAGE = (STATIC / "index.html").read_text(encoding="utf-8")
OWN = sorted(path for path in STATIC.iterdir() if path.suffix in {".js", ".css", ".html"})


def test_every_vendored_file_has_the_hash_of_the_manifest() -> None:
    listed = {}
    for package in MANIFEST["packages"]:
        listed[package["licence_file"]] = package["licence_sha256"]
        listed |= {entry["file"]: entry["sha256"] for entry in package["files"]}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert found == listed


@pytest.mark.parametrize("package", MANIFEST["packages"], ids=lambda package: package["name"])
def test_every_vendored_package_has_a_version_and_a_licence(package: dict[str, str]) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
    text = (VENDOR / package["licence_file"]).read_text(encoding="utf-8")
    assert {"MIT": "MIT", "Apache-2.0": "Apache License"}[package["licence"]] in text


def test_the_import_map_is_that_of_the_manifest() -> None:
    (written,) = re.findall(r'<script type="importmap">(.*?)</script>', PAGE, re.DOTALL)
    entries = [entry for package in MANIFEST["packages"] for entry in package["files"] if entry["import"]]
    expected = {entry["import"]: f"/static/vendor/{entry['file']}" for entry in entries}
    assert json.loads(written)["imports"] == expected


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_page_loads_nothing_from_another_host(path: Path) -> None:
    addresses = re.findall(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}""", path.read_text(encoding="utf-8"))
    assert [address for address in addresses if "www.w3.org" not in address] == []


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_text_becomes_markup_or_code(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert sink not in code


def test_every_imported_module_exists() -> None:
    for path in OWN:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
            assert (STATIC / name).is_file(), f"{path.name} imports {name}"


def test_every_module_is_loaded_at_once() -> None:
    """Without it, the browser finds the modules one after the other, import by import."""
    scripts = {f"/static/{file.relative_to(STATIC)}" for file in STATIC.rglob("*.js")}
    classic = set(re.findall(r'<script src="([^"]+)"', PAGE))
    assert set(re.findall(r'<link rel="modulepreload" href="([^"]+)">', PAGE)) == scripts - classic
