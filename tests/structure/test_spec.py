"""Every rule that the package cites is defined in docs/spec, with an anchor."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"\b[CGSAJNM][1-9]\d?\b")
HEADING = re.compile(r"^### ([CGSAJNM]\d+) [^\n]*\{ #([a-z]\d+) \}$", re.MULTILINE)
NUMBERS = {"C": 10, "G": 9, "S": 11, "A": 4, "J": 7, "N": 6, "M": 7}
"""How many rules of each letter there are."""


def defined() -> list[tuple[str, str]]:
    """The rules and their anchors, in the order of the pages."""
    pages = sorted((ROOT / "docs" / "spec").glob("*.md"))
    return [rule for page in pages for rule in HEADING.findall(page.read_text(encoding="utf-8"))]


def cited(source: str) -> set[str]:
    """The rules named in the comments and docstrings of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (
        token.string for token in tokens if token.type == tokenize.COMMENT or token.string.endswith('"""')
    )
    return {rule for text in texts for rule in RULE.findall(text)}


def test_every_rule_is_defined_once() -> None:
    expected = [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]
    assert Counter(rule for rule, _ in defined()) == Counter(expected)


def test_every_rule_has_its_own_anchor() -> None:
    assert [(rule, anchor) for rule, anchor in defined() if anchor != rule.lower()] == []


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_cited_rules_are_defined(folder: str) -> None:
    rules = {rule for rule, _ in defined()}
    files = sorted((ROOT / folder).rglob("*.py"))
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    unknown = {
        str(file.relative_to(ROOT)): sorted(missing)
        for file, source in sources.items()
        if set(RULE.findall(source)) - rules  # reading its tokens takes much longer
        if (missing := cited(source) - rules)
    }
    assert files
    assert unknown == {}


def test_citations_are_found_in_comments_and_docstrings_only() -> None:
    source = '"""Rule C1."""\n\nname = "S99"\n# equal is an error (G12)\nvalue = A77\n'
    assert cited(source) == {"C1", "G12"}
