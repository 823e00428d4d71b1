"""Entry point of the installed `slackwater` command, and of `python -m slackwater.cli`."""

from __future__ import annotations

import sys

from slackwater._extras import naming_extras
from slackwater.errors import MissingExtra


def main() -> None:
    """Run the command; without the extra ``cli``, end with the command that installs it."""
    try:
        with naming_extras():
            from slackwater.cli.app import app
            from slackwater.cli.console import use_utf8
    except MissingExtra as error:
        sys.exit(f"Error: {error}")
    use_utf8()
    app()


if __name__ == "__main__":
    main()
