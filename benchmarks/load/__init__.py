"""Many at once: readers, queued runs, events a second; what gives way, and what comes back."""
