"""What went wrong, as far as an error tells."""

from breakeven.runner.supervision.exits import NO_ROOM


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, on the device or on the host, somewhere down the chain of causes."""
    while error is not None:
        words = (
            "out of memory",
            "can't allocate memory",
            "not enough memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
        )
        if isinstance(error, MemoryError) or any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it followed from, says that the disk has no room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False
