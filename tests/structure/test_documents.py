"""The >>> examples of all documents run and print what they show."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import yaml

from tests.support.pages import python_blocks

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SESSION = ">>> spark = "
"""A document whose examples need Spark contains this line."""

PASTED = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("index.md", "tutorial.md")),
          *sorted((ROOT / "docs" / "cookbook").glob("*.md"))]  # fmt: skip
"""Documents whose blocks of Python form a program; other tests run them."""
CHARACTERS = 98
"""The width of a block of code on a page."""


def examples(text: str, name: str) -> doctest.DocTest:
    """All examples of a document as one test: later blocks may use the names of earlier ones.

    Fences are blanked, not removed, so that line numbers in failures match the document.
    """
    unfenced = re.sub(r"^ *(```|~~~).*$", "", text, flags=re.MULTILINE)
    return doctest.DocTestParser().get_doctest(unfenced, {"__name__": name}, name, name, 0)


def failures(test: doctest.DocTest) -> tuple[int, str]:
    output: list[str] = []
    failed = doctest.DocTestRunner().run(test, out=output.append).failed
    return failed, "".join(output)


def marked(document: Path) -> pytest.ParameterSet:
    needs_spark = SESSION in document.read_text(encoding="utf-8")
    marks = [pytest.mark.spark, pytest.mark.proof] if needs_spark else []
    return pytest.param(document, id=str(document.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("document", [marked(document) for document in DOCUMENTS])
def test_the_examples_run(document: Path) -> None:
    failed, output = failures(examples(document.read_text(encoding="utf-8"), document.name))
    assert failed == 0, output


def test_a_wrong_example_is_reported() -> None:
    failed, output = failures(examples("words\n```python\n>>> 1 + 1\n3\n```\nmore words\n", "page.md"))
    assert failed == 1
    assert 'File "page.md", line 3' in output


@pytest.mark.parametrize("document", PASTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_to_paste_fits_on_the_page(document: Path) -> None:
    blocks = python_blocks(document.read_text(encoding="utf-8"), document.name)
    assert blocks
    assert [line for block in blocks for line in block.code.splitlines() if len(line) > CHARACTERS] == []


def test_the_modules_that_the_architecture_page_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page)
    assert len(named) > 30
    bases = [ROOT, ROOT / "src" / "slackwater"]
    assert [name for name in named if not any((base / name).is_file() for base in bases)] == []


def test_the_pages_are_in_the_order_in_which_a_new_user_needs_them() -> None:
    pages = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert [title for page in pages for title in page] == [
        "Start", "Install", "Tutorial", "Cookbook", "Concepts", "Operations", "Coming from", "FAQ",
        "Reference", "Contributing",
    ]  # fmt: skip
    assert "Decisions" in str(pages[-1])
