"""The former path of `optim.builder`, which other people's code imports: `from optim.build import build`.

Importing it puts this module where the package has the function of its name, and so it may be called like that.
"""

import sys
from types import ModuleType

from .builder import build as build


class _CallableModule(ModuleType):
    __call__ = staticmethod(build)


sys.modules[__name__].__class__ = _CallableModule
