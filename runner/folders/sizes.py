"""Sizes as people write them: `500MB`, `20GB`, `1TB`."""

import re

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?B)", re.IGNORECASE)
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int:
    """Bytes; raises `ValueError`."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be a size as 500MB, 20GB or 1TB")
    return int(float(found[1]) * UNITS[found[2].upper()])
