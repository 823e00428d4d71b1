"""What a running query reports: watermarks, holders, counters."""
