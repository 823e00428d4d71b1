"""Every example in the README and in the documentation runs and prints what it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SESSION = ">>> spark = "
"""A document whose examples start Spark has this line."""


def examples(text: str, name: str) -> doctest.DocTest:
    """All examples of a document, as one session: a later block may use what an earlier one made.

    The fences are blanked, not cut, so that line numbers in failures are those of the document.
    """
    unfenced = re.sub(r"^ *(```|~~~).*$", "", text, flags=re.MULTILINE)
    return doctest.DocTestParser().get_doctest(unfenced, {"__name__": name}, name, name, 0)


def failures(test: doctest.DocTest) -> tuple[int, str]:
    said: list[str] = []
    failed = doctest.DocTestRunner().run(test, out=said.append).failed
    return failed, "".join(said)


def marked(document: Path) -> pytest.ParameterSet:
    needs_spark = SESSION in document.read_text(encoding="utf-8")
    marks = [pytest.mark.spark] if needs_spark else []
    return pytest.param(document, id=str(document.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("document", [marked(document) for document in DOCUMENTS])
def test_the_examples_run(document: Path) -> None:
    failed, said = failures(examples(document.read_text(encoding="utf-8"), document.name))
    assert failed == 0, said


def test_the_readme_has_an_example() -> None:
    assert examples((ROOT / "README.md").read_text(encoding="utf-8"), "README.md").examples


def test_a_wrong_example_is_found() -> None:
    failed, said = failures(examples("words\n```python\n>>> 1 + 1\n3\n```\nmore words\n", "page.md"))
    assert failed == 1
    assert 'File "page.md", line 3' in said
