"""What a data folder is called in a team's store: the same from every machine that has it mounted,
and another one for a copy of it."""

import os
import secrets
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable

FILE = "team-store-id"


def data_folder_id(data_dir: DataDir) -> str:
    """The name in the folder's file `team-store-id`, which is made if there is none.

    The file says in which inode it was written: a copy lies in another one, and is named anew.
    Raises `TeamStoreUnusable`.
    """
    file = data_dir.path / FILE
    try:
        for _ in range(10):
            name = _read(file)
            if name is not None:
                return name
            _write(file)
    except OSError as error:
        raise TeamStoreUnusable(f"{file} cannot be written: {error}") from None
    raise TeamStoreUnusable(f"{file} changes all the time; does something copy files there?")


def _read(file: Path) -> str | None:
    try:
        name, _, inode = file.read_text().strip().partition(" ")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return name if name and inode == str(os.stat(file).st_ino) else None


def _write(file: Path) -> None:
    """Puts a new name in place; of several who do so at once the last one counts for all."""
    draft = file.with_name(f"{FILE}.{secrets.token_hex(4)}")
    with draft.open("x") as text:
        text.write(f"{secrets.token_hex(8)} {os.fstat(text.fileno()).st_ino}\n")
    if file.exists():
        os.replace(draft, file)
        return
    try:
        os.link(draft, file)  # Unlike a renaming this fails where another one was quicker.
    except FileExistsError:
        pass
    finally:
        draft.unlink()
