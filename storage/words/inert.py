"""Foreign text that Markdown, HTML (attributes too) and Plotly's labels show literally: pages and
summaries for pull requests."""

import re

SPECIAL_CHARACTERS = re.compile(
    r"[\\`*\[\]<>&\"'$~|{}^]"
    r"|:(?!\s|$)"  # a directive such as `:red[...]`, an icon, an emoji, the scheme of an address
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # without a meaning inside a word
    r"|^(?:[-+](?=\s|$)|[-=]+\s*$|#{1,6}(?=\s|$)|\d{1,9}[.)](?=\s|$))"  # lists, headings
)
"""Characters that mean something in one of the formats; as entities they only show."""
AUTOLINK_STARTS = re.compile(
    r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)"
    r"|(?<=[\w.+-])(?=@)"
    r"|:(?=[\w+-]+:)"
    r"|(?<=\s)(?=<?->?\s|--\s|[<>~]=\s)",
    re.IGNORECASE,
)
"""Starts of addresses, emoji, icons and arrows, which are searched after entities are decoded. An
invisible joiner of zero width breaks them."""
JOINER = "\N{WORD JOINER}"
BREAKS = re.compile(r"[\t\n\r\f\v\x85\u2028\u2029]+")
INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, characters that change the direction of writing, and lone surrogates."""


def inert(text: object) -> str:
    """The text for Markdown, HTML and Plotly, which show all of it and interpret nothing.

    Line breaks become spaces, control characters a replacement character.
    """
    separated = AUTOLINK_STARTS.sub(lambda match: match[0] + JOINER, plain(text))
    return SPECIAL_CHARACTERS.sub(
        lambda match: "".join(f"&#{ord(character)};" for character in match[0]), separated
    )


def code(text: object) -> str:
    """The text as a code span in Markdown, for paths, options and other literal text.

    A code span decodes no entities and interprets nothing; only its fence must be longer than every
    run of backticks inside.
    """
    shown = plain(text).replace(":material/", f":{JOINER}material/")  # Streamlit reads it even here
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def plain(text: object) -> str:
    """The text for widgets that read no Markdown, such as entries of a selector and cells of a
    table: one line without invisible characters, which could reverse the text around them."""
    return INVISIBLE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", BREAKS.sub(" ", str(text)))
