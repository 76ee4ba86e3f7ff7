"""Tables from files: reading, the convention that empty labels are unlabeled rows, cleaning, writing labels back.

`__init__.pyi` lists the names, each loaded when it is used: a mistake in a file's name is told without scikit-learn.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
