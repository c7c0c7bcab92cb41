"""Causes faults on purpose and counts their damage: `docs/promises.md`."""
