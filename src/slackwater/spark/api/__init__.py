"""The stream API: streams, windowed streams, panes and joins."""
