"""``python -m slackwater.cli``, where the command itself is not installed."""

from __future__ import annotations

from slackwater.cli.app import main

if __name__ == "__main__":
    main()
