"""What crosses between tasks: buffers, headers, payloads and the codec of pane rows."""
