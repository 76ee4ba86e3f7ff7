"""surefoot: few labels, many unlabeled rows, a classifier with a certified worst case.

`__init__.pyi` lists the public names. Each is loaded when it is first used: the command line prints its help and a
user's mistakes without waiting for numerical packages.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
