"""Paths of Breakeven's own files."""

import os
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder `breakeven` with code, pages, examples and documents. In a checkout it contains links
to the folders of the checkout."""
PROJECT_ROOT = PACKAGE.parent
"""The folder that `breakeven` is imported from: a checkout, or `site-packages`."""
IS_CHECKOUT = (PROJECT_ROOT / "pyproject.toml").is_file()


def linked_code(data_folder: Path) -> Path:
    """A folder from which another Python imports the package `breakeven` and nothing else; raises
    `OSError`. `site-packages` would offer all packages of Breakeven's own Python."""
    folder = data_folder / "code"
    link = folder / PACKAGE.name
    folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(OSError):
        if os.readlink(link) == str(PACKAGE):
            return folder
        link.unlink()
    with suppress(FileExistsError):  # by another run that starts at the same time
        link.symlink_to(PACKAGE)
    return folder
