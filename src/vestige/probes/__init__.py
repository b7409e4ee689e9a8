"""Knowledge holes: what went with the forget set, how it is looked for and mended.

`VERSION` is part of the identity of every part of a probe; raised when the code would find something else.
"""

VERSION = 2
