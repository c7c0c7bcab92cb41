"""Texts that all parts share: durations, and foreign text made fit for one line."""

MAX_CHARACTERS = 500


def printable(text: object, limit: int = MAX_CHARACTERS) -> str:
    """The text on one line, cut at `limit`, with everything that is no visible character written as
    an escape: line ends, what drives a terminal, and bytes of a file name that are not UTF-8."""
    shown = str(text)
    if len(shown) > limit:
        shown = shown[: limit - 4] + " ..."
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in shown)


def duration(seconds: float) -> str:
    """`0.4 s`, `45 s`, `3 min 20 s`, `2 h 5 min`; what is less than nothing counts as nothing."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
