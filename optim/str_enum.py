"""`enum.StrEnum`, which Python has since 3.11: members are strings, and print as such."""

import sys
from enum import Enum

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum
else:

    class StrEnum(str, Enum):
        """A string enumeration like Python's own."""

        __str__ = str.__str__
        __format__ = str.__format__
