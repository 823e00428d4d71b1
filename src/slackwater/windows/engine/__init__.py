"""The columnar engine that runs the operators.

| module | rules of docs/spec/windows.md |
|---|---|
| ``windowed_operator`` | the order within a step, late rows, the watermark sent downstream |
| ``lateness`` | allowed lateness, purge |
| ``firing`` | timing and index of panes, which panes are emitted |
| ``retractions`` | retractions, windows without elements, suppression of unchanged panes |
| ``compiled_trigger`` | evaluation of triggers |
| ``sliced_windows``, ``slices``, ``slice_partials`` | windows with fixed bounds |
| ``session_windows``, ``session_merging``, ``row_log`` | sessions |
| ``cogroup_operator`` | two inputs in the same windows |
| ``join_operator``, ``join_limits``, ``join_matching`` | the time-bounded join |
| ``join_buffers``, ``join_columns`` | buffered rows and columns of joins |
| ``asof_operator``, ``asof_matching`` | the as-of join |
| ``further_keys`` | several watermark keys of a side |
| ``deduplicate_operator`` | the first row per key within a time bound |
| ``equal_rows`` | retractions of rows, as a counted multiset |
| ``elements`` | validation of batches |
| ``window_state``, ``blobs`` | saved state |
| ``operator_description``, ``evolution``, ``state_summary`` | saved state that changes or is inspected |
"""
