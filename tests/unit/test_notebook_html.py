"""What notebooks show: static, escaped, bounded, and readable without its own colours for text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from slackwater import _notebook_html as notebook
from slackwater.time import END_OF_TIME, SECOND
from tests.support.notebook_values import MARKUP, SHOWN, reprs


class Tags(HTMLParser):
    """The tags and the text of a fragment; every tag has to be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")], "no event handlers"
        if tag not in {"br", "line", "polyline"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", SHOWN)
def test_every_fragment_is_well_formed_static_and_escaped(name: str) -> None:
    parsed = Tags(reprs()[name])
    assert parsed.open == []
    assert not parsed.tags & {"script", "style", "img", "link", "iframe", "b>"}
    assert MARKUP in parsed.text, "what a person called it is shown as text"


@pytest.mark.parametrize("name", SHOWN)
def test_text_has_the_colour_of_the_notebook(name: str) -> None:
    html = reprs()[name]
    assert not re.search(r"[;\" ]color:", html)
    assert not re.search(r"background:(?!none|#)", html)


@pytest.mark.parametrize("name", SHOWN)
def test_every_fragment_says_the_essential(name: str) -> None:
    assert re.search(SHOWN[name], Tags(reprs()[name]).text)


def test_tables_and_pictures_of_thousands_of_rows_are_bounded() -> None:
    table = notebook.table(["n"], ([number] for number in range(3_000)))
    assert table.count("<tr>") == notebook.MOST_ROWS + 1
    assert "… and 2950 more" in table
    spans = [notebook.TimeSpan("x" * 10_000, number, None, "active") for number in range(3_000)]
    picture = notebook.timeline(spans)
    assert picture.count("<circle") == notebook.MOST_ROWS
    assert len(picture) < 550_000


def test_unknown_and_endless_times_have_a_place() -> None:
    spans = [
        notebook.TimeSpan("never", None, None, "silent"),
        notebook.TimeSpan("done", END_OF_TIME, None, "done"),
        notebook.TimeSpan("at", 5 * SECOND, None, "active"),
    ]
    picture = notebook.timeline(spans, [("watermark", None)])
    assert "no time yet" in picture
    assert picture.count("<circle") == 2
    assert "watermark" not in picture
    assert notebook.timeline([notebook.TimeSpan("never", None, None, "silent")]) == ""
