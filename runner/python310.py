"""Names that Python 3.10 lacks. Runs may execute it; Breakeven itself needs a newer Python."""

import sys
from enum import Enum
from typing import TypeVar

if sys.version_info >= (3, 11):  # noqa: UP036
    from enum import StrEnum as StrEnum
    from typing import Self as Self
else:
    Self = TypeVar("Self")

    class StrEnum(str, Enum):  # noqa: UP042
        """Members that are texts."""

        __str__ = str.__str__
