"""The repository: no local paths or registries, a complete lock file, and correct documents."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
GENERATED = {".git", ".venv", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".benchmarks",
        "__pycache__", "site", "build", "dist"}  # fmt: skip
"""Names that git and other tools create."""

PERSONAL = "|".join(["work", "farm", "home", "root", "Users", "tmp", "mnt", "opt"])
ABSOLUTE = re.compile(rf"(?<![\w.$}})*]/)(?<![\w.$}})*])/(?:{PERSONAL})/\w")
REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|anaconda\.org|npmjs\.org|maven\.org|docker\.io|ghcr\.io|quay\.io)"
)
PINNED = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^\s;]+)( ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in GENERATED:  # in a worktree .git is a file
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files(path)
        elif path.is_file():
            yield path


def lines_with(pattern: re.Pattern[str], folder: Path) -> list[str]:
    found = []
    for path in files(folder):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image
        if pattern.search(text):
            found += [
                f"{path.relative_to(folder)}:{number}: {line.strip()[:120]}"
                for number, line in enumerate(text.splitlines(), 1)
                if pattern.search(line)
            ]
    return found


def test_no_file_contains_a_local_path() -> None:
    assert lines_with(ABSOLUTE, ROOT) == []


def test_no_file_contains_a_package_registry() -> None:
    assert lines_with(REGISTRY, ROOT) == []


def test_a_local_path_or_a_registry_is_found(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(
        "see /" + "home/me/data\nrun ./tmp/x and docs/work/y\nfrom pypi" + ".org\n"
    )
    assert [line.split(": ")[0] for line in lines_with(ABSOLUTE, tmp_path)] == ["notes.md:1"]
    assert [line.split(": ")[0] for line in lines_with(REGISTRY, tmp_path)] == ["notes.md:3"]


# ---- the lock


def pins(text: str) -> dict[str, list[str]]:
    """The versions of each pinned package; several if they depend on the platform or the Python version.

    Any line other than a pin or a hash is an error.
    """
    found: dict[str, list[str]] = {}
    hashes = 1
    entry = "the first line"
    for line in text.splitlines():
        if line.strip().startswith("#"):
            continue
        if pin := PINNED.fullmatch(line):
            assert hashes, f"{entry} has no hash"
            entry, version, marker = pin.groups()
            assert marker or entry not in found, f"{entry} is pinned twice for the same machine"
            hashes = 0
            found.setdefault(entry, []).append(version)
        else:
            assert HASH.fullmatch(line), f"neither a pin with == nor a hash: {line!r}"
            hashes += 1
    assert hashes, f"{entry} has no hash"
    return found


def test_the_lock_contains_only_pins_with_hashes() -> None:
    assert pins((ROOT / "requirements.lock").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "polars>=1 \\\n    --hash=sha256:" + "0" * 64,
        "polars==1.0",
        "polars==1.0 \\",
        ("polars==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n") * 2,
        "polars==1.0 \\\nnumpy==2.0 \\\n    --hash=sha256:" + "0" * 64,
        "polars==1.0 \\\n    --hash=md5:" + "0" * 32,
        "--find-links somewhere",
        "-e .",
    ],
)
def test_a_lock_with_anything_else_is_rejected(text: str) -> None:
    with pytest.raises(AssertionError):
        pins(text)


def test_the_lock_satisfies_the_requirements_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = list(project["project"]["dependencies"]) + list(project["build-system"]["requires"])
    for extra in project["project"]["optional-dependencies"].values():
        asked += extra
    locked = pins((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    wanted = {text: Requirement(text) for text in asked}
    found = {text: locked.get(canonicalize_name(wanted[text].name), ["none"]) for text in asked}
    stale = [text for text in asked if not all(map(wanted[text].specifier.contains, found[text]))]
    assert stale == [], "run make lock"


# ---- the documents


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def documents() -> list[Path]:
    return [path for path in files(ROOT) if path.suffix == ".md"]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    named = re.findall(r"(?:`|^)make ([a-z]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= targets()


def test_the_readme_starts_with_two_commands() -> None:
    named = re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert named == ["demo", "test"]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_has_a_target(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    relative = [
        link.split("#")[0] for link in links if "://" not in link and not link.startswith(("#", "mailto:"))
    ]
    assert [link for link in relative if not (document.parent / link).exists()] == []


def test_the_index_of_decisions_lists_every_decision_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+?) \|", (folder / "index.md").read_text("utf-8"), re.M
    )
    titles = [
        (
            path.name[:4],
            path.name,
            path.read_text("utf-8").splitlines()[0].removeprefix(f"# {path.name[:4]} "),
        )
        for path in sorted(folder.glob("[0-9]*.md"))
    ]
    assert listed == titles


def test_make_help_lists_every_target_in_one_line() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    listed = dict(re.findall(r"^  make ([a-z]+) +(\S.*)$", shown, re.MULTILINE))
    assert listed.keys() == targets() - {"environment"}
    assert {"demo", "test", "check", "lint", "bench", "docs"} <= listed.keys()
