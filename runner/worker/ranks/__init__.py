"""One run as a group of processes, one for each device."""
