"""Tables from files: read them, treat empty labels as unlabeled rows, clean them, and write labels back.

`__init__.pyi` lists the names. Each name is loaded on first use, so a wrong file name is reported without loading
scikit-learn.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
