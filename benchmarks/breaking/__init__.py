"""Breeds faults on purpose and counts what they cost: `docs/reliability.md`."""
