"""What people add to an experiment: a name, tags, notes, and whether it is put away.

It lies in `labels.json` of the experiment's first run, so that it travels with the folder and
survives a rebuild of the database. Whoever writes holds the data folder's library lock.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from breakeven.runner.specs.fields import Spec, require

MAX_NAME = 120
MAX_TAGS = 20
MAX_TAG = 40


@dataclass(frozen=True, kw_only=True)
class Labels(Spec):
    """The labels of one experiment. A file from elsewhere is refused like any specification."""

    name: str | None = None
    """What it is called instead of what its specification says."""
    tags: tuple[str, ...] = ()
    notes: str = ""
    """Markdown, shown without links, images and HTML."""
    archived: bool = False
    """Whether lists leave it out unless they are asked for it."""

    def check_rules(self) -> None:
        rule = f"must be 1 to {MAX_NAME} printable characters"
        require(self.name is None or _is_line(self.name, MAX_NAME), "name", self.name, rule)
        rule = f"must be at most {MAX_TAGS}"
        require(len(self.tags) <= MAX_TAGS, "tags", self.tags, rule)
        rule = f"must each be 1 to {MAX_TAG} printable characters without a comma"
        valid = all(_is_line(tag, MAX_TAG) and "," not in tag for tag in self.tags)
        require(valid, "tags", self.tags, rule)

    def tagged(self, add: Collection[str] = (), remove: Collection[str] = ()) -> "Labels":
        """With these tags more and those less; each once, in the order in which they came."""
        kept = [tag for tag in (*self.tags, *add) if tag not in remove]
        return replace(self, tags=tuple(dict.fromkeys(kept)))


Change = Callable[[Labels], Labels]


def _is_line(text: str, most: int) -> bool:
    return 0 < len(text) <= most and text.isprintable() and text == text.strip()
