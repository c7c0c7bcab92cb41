"""Recognises errors of a resource that only one process can hold, such as a fixed port or a lock.

All runs of an experiment are alive at once, so a script that works alone fails beside its copies.
"""

import re

PORT = re.compile(
    r"EADDRINUSE|(?i:address (is )?already in use|only one usage of each socket address)|"
    r"(?i:port \d+ is (already )?(in use|taken|occupied|allocated))|"
    r"(?i:could not bind to (port|address))|UnityWorkerInUse|worker number \d+ is still in use"
)
LOCK = re.compile(
    r"(?i:database (\w+ )?is locked)|Could not set lock on file|"
    r"(?i:unable to (synchronously )?(open|lock) file[\s\S]{0,80}(lock|errno = 11\b))|"
    r"(?i:the file lock '[^']*' could not be acquired)|(?i:already locked)|AlreadyLocked|"
    r"LockException|lockfile\.\w+|filelock[/\\]_\w+\.py\", line \d+,? in acquire|"
    r"BlockingIOError: |Resource temporarily unavailable|"
    r"FileExistsError: [^\n]*\.(lock|lck|pid)\b|(?i:another (process|instance)[^\n]{0,60}"
    r"(is (already )?(running|using)|holds|has)\b)"
)


def held_by_another(text: str) -> str | None:
    """`port` or `lock` if an error, with its traceback or output, says that another process holds
    what only one can hold; else None."""
    if PORT.search(text):
        return "port"
    return "lock" if LOCK.search(text) else None


ALONE = {
    "memory": "the device cannot hold all runs at once",
    "port": "the script opens a port that only one run at a time can have",
    "lock": "the script holds a file or lock that only one run at a time can have",
}
"""Why runs cannot be alive at once."""
REPEATS = "repeats them one after another"
"""End of the reason of runs that another experiment repeats."""
