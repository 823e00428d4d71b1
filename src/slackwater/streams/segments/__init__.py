"""Pure values of a stream: segments and epochs, positions, stream cuts, and the routing of keys to segments.

Nothing here opens a store or a file.
"""
