"""The command ``slackwater``: one file for each group of commands, no logic of its own."""
