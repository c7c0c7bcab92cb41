"""Text that came from elsewhere, made fit for one line of a terminal, a log or a database."""

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
