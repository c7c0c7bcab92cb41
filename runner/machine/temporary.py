"""Where compilers keep what no cache of a run is given for: in a folder that no other account made.

Torch puts headers that it compiles beforehand into the machine's temporary folder, by a name that
everybody can tell, whichever cache it is given. Whoever makes that folder first could put into them
what every compiled graph would then run.
"""

import getpass
import os
import re
import stat
import tempfile
from pathlib import Path


def keep_others_out() -> None:
    """Makes that folder ours alone; where it is somebody else's, this process and those that it
    starts have a temporary folder of their own. To be called before torch compiles anything."""
    folder = Path(tempfile.gettempdir(), name_of_torchs())
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return  # Nobody else can, either: torch says what is wrong.
    found = folder.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or found.st_mode & stat.S_IWOTH
    ):
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="breakeven-")
    elif found.st_mode & 0o077:
        folder.chmod(0o700)


def name_of_torchs() -> str:
    """As torch calls it."""
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    return "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
