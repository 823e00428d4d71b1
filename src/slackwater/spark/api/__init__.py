"""What users call: streams, windowed streams, panes and joins."""
