"""Phrases that make prose hard to read do not occur in the sources and documents.

The list covers what a pattern can find; CONTRIBUTING.md describes the rest.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "benchmarks", "examples", "scripts", "tests")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "mkdocs.yml", "pyproject.toml")
SUFFIXES = {".py", ".md", ".sh", ".yml", ".toml"}
EXCEPTIONS = {
    "tests/spark/postgres.py": "nobody is the name of an account",
    "tests/structure/test_language.py": "contains the phrases",
}
"""Files that are not checked, with the reason."""

BANNED = {
    "whoever": ("ever", r"\bwho(?:so)?ever\b"),
    "nobody, somebody, anybody, everybody": ("body", r"\b(?:no|some|any|every)body\b"),
    "for ever": ("ever", r"\bfor ever\b"),
    "beside": ("beside", r"\bbesides?\b"),
    "told": ("told", r"\btold\b"),
    "whom": ("whom", r"\bwhom\b"),
    "in silence": ("silence", r"\bin silence\b"),
    "put in place": ("place", r"\bput in place\b"),
    "called so": ("called", r"\bcalled so\b"),
    "is no X": ("no", r"(?<!there )\bis no (?!longer\b|more\b|less\b|\w+er than\b)\w"),
    "taken for": ("taken", r"\btaken for\b"),
    "without a word": ("word", r"\bwithout a word\b"),
}
"""A phrase with a word of it, which is found fast, and the pattern that finds the phrase.

A blank in a pattern also matches a line break in a comment.
"""


def pattern(phrase: str) -> re.Pattern[str]:
    blank = r"(?:\s+(?:#\s*)?)"
    return re.compile(re.sub(r"(?<!there) (?!\?)", lambda _: blank, BANNED[phrase][1]))


@cache
def texts() -> dict[str, str]:
    """The files by their path in the repository."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    names = [path.relative_to(ROOT).as_posix() for path in found if path.suffix in SUFFIXES]
    chosen = [*(name for name in names if name not in EXCEPTIONS), *FILES]
    return {name: (ROOT / name).read_text(encoding="utf-8").lower() for name in chosen}


def found(phrase: str, text: str) -> list[int]:
    """The lines in which the phrase begins."""
    text = text.lower()
    if BANNED[phrase][0] not in text:
        return []
    return [text.count("\n", 0, match.start()) + 1 for match in pattern(phrase).finditer(text)]


@pytest.mark.parametrize("phrase", BANNED)
def test_the_phrase_does_not_occur(phrase: str) -> None:
    assert [f"{name}:{line}" for name, text in texts().items() for line in found(phrase, text)] == []


@pytest.mark.parametrize(
    ("phrase", "text", "lines"),
    [
        ("whoever", "Whoever waits\nfor it", [1]),
        ("for ever", "a = 1  # it waits for\n# ever", [1]),
        ("is no X", "x = 1\n'foo' is no column", [2]),
        ("is no X", "there is no column; it is no longer here; it is no larger than that", []),
        ("told", "unless it\nis told", [2]),
        ("nobody, somebody, anybody, everybody", "def nobody_home(): ...", []),
    ],
)
def test_phrases_are_found(phrase: str, text: str, lines: list[int]) -> None:
    assert found(phrase, text) == lines
