"""The `slackwater` command: one module per command or command group, without logic of its own."""
