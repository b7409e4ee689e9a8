"""Knowledge holes: harmless knowledge that was lost with the forget set, and the search for it.

`VERSION` is part of the identity of every part of a probe. Raised when the code would find something different.
"""

VERSION = 3
