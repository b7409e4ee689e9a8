"""Makes docs/report.png, README's picture: the first screen of the demo's report, after `make demo`; needs Chromium.

The picture holds the heads and words of the page that it was made from, so that a test tells when they have changed.
"""

import json
import struct
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "report.png"
KEYWORD = b"words of the page"
SIZE = (1280, 1320)


def words() -> str:
    """The heads of the table and the words of the legend, as the page has them now."""
    from vestige.report.audit import HEADS
    from vestige.report.words import WORDS_OF

    return json.dumps([*HEADS.items(), *WORDS_OF["meanings"]])


def with_text(png: bytes, text: str) -> bytes:
    """The picture with a text chunk before its last one (PNG specification, 11.3.3.2)."""
    data = b"tEXt" + KEYWORD + b"\0" + text.encode("latin-1")
    chunk = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return png[:-12] + chunk + png[-12:]


def text_of(png: bytes) -> str:
    """What `with_text` put in; "" where nothing is."""
    start = png.find(b"tEXt" + KEYWORD + b"\0")
    if start < 0:
        return ""
    (length,) = struct.unpack(">I", png[start - 4 : start])
    return png[start + 4 + len(KEYWORD) + 1 : start + 4 + length].decode("latin-1")


def main(report: Path) -> None:
    """Open the report and keep its first screen."""
    sys.path.insert(0, str(ROOT / "tests" / "report"))
    from chromium import chromium

    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as page:
        page.resize(*SIZE)
        page.open(report)
        page.screenshot(PICTURE)
    PICTURE.write_bytes(with_text(PICTURE.read_bytes(), words()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "runs" / "demo" / "report.html"))
