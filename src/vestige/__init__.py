"""Vestige audits LLM unlearning: what remains, what else was lost, and whether the answer can be trusted.

The names in `__init__.pyi` are what a program needs; each is loaded when it is first used, so that `import vestige` is
instant.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
