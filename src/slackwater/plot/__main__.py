"""Entry point of `python -m slackwater.plot NAME FILE`, which draws an example of the documentation."""

from __future__ import annotations

import argparse
from typing import get_args

from slackwater.plot.event_time_picture import save_picture
from slackwater.plot.examples import ExampleName, example


def main() -> None:
    """Parse the arguments and draw the example."""
    parser = argparse.ArgumentParser(
        prog="slackwater.plot", description="Draw an example of the documentation."
    )
    parser.add_argument("name", choices=get_args(ExampleName), help="the example")
    parser.add_argument("file", help="the file to write (.svg or .png)")
    arguments = parser.parse_args()
    save_picture(example(arguments.name), arguments.file, value="total", element="price")


if __name__ == "__main__":
    main()
