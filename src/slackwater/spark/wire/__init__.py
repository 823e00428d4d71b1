"""The data that crosses between tasks: buffers, headers, payloads and the codec for output rows."""
