"""Entry point of `python -m slackwater.cli`, for environments without the installed command."""

from __future__ import annotations

from slackwater.cli.app import main

if __name__ == "__main__":
    main()
