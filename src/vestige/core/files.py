"""Files that are whole or absent.

A file is written next to its place, flushed to the disk and renamed over its name. A folder likewise. A log grows by
whole lines, and a line that a crash cut short is dropped when the log is opened again.

No link is followed when something is written, and a folder in which work begins is refused if a folder in it is a link:
who sent the folder could otherwise have any file of the reader's overwritten.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from vestige.core.errors import InputError, MachineError
from vestige.core.text import one_line

try:
    import fcntl
except ImportError:
    raise ImportError(
        "Vestige needs the file locks of Linux or macOS (Python's fcntl); on Windows run it in WSL"
    ) from None

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_MACHINE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM}

MOST_READ = 2**31
"""Bytes of a file that is read whole. A larger one is refused before it is read."""
_MOST_LINE = 2**28
_MOST_RATIO, _MOST_SMALL = 200, 2**26
"""An archive may unpack to this multiple of its packed size, or to `_MOST_SMALL` bytes if that is more."""


def open_input(path: Path | str, *, most: int | None = None) -> io.BufferedReader:
    """Open a file that may come from a stranger.

    Every reader of the package opens its inputs here. A link to a regular file is followed.

    Args:
        path: The file.
        most: The largest size in bytes. None sets no limit, for files that are read piece by piece.

    Returns:
        The file, open for reading bytes.

    Raises:
        InputError: The path leads to a device, a pipe, a socket or a folder, or the file is larger than `most`.
        OSError: The file is absent or cannot be read.
    """
    # Opening a pipe would wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    state = os.fstat(handle)
    problem = ""
    if not stat.S_ISREG(state.st_mode):
        problem = _special(state.st_mode)
    elif most is not None and state.st_size > most:
        problem = f"has {state.st_size} bytes, and Vestige reads at most {most}. Give a smaller file."
    if problem:
        os.close(handle)
        raise InputError(f"{one_line(str(path), width=300)} {problem}")
    return os.fdopen(handle, "rb")


def refuse_special(path: Path | str) -> None:
    """Reject a path to a device, a pipe or a socket. Files, folders and missing paths are accepted.

    Raises:
        InputError: The path leads to a special file.
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{one_line(str(path), width=300)} {_special(mode)}")


def _special(mode: int) -> str:
    return f"is {_KINDS.get(stat.S_IFMT(mode), 'special')} and not a regular file. Replace it by the file itself."


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_bytes(path: Path | str, *, most: int = MOST_READ) -> bytes:
    """The whole content of an input. `open_input` lists the rejected paths."""
    with open_input(path, most=most) as file:
        # A file that grows during the read is cut off here.
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{one_line(str(path), width=300)} has more than {most} bytes. Give a smaller file.")
    return content


def read_text(path: Path | str, *, encoding: str = "utf-8", most: int = MOST_READ) -> str:
    """The text of an input. `open_input` lists the rejected paths. Bytes that are not UTF-8 are an InputError."""
    try:
        return read_bytes(path, most=most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8") from error


class Unpacked(io.RawIOBase):
    """A decompressed stream that refuses to grow beyond a multiple of its packed size.

    Example:
        `with ZipFile(path) as z, Unpacked(z.open(info), info.compress_size, f"{path}: {info.filename}") as member:`
    """

    def __init__(self, stream: Any, packed: int, name: str) -> None:
        """Limit `stream`, which was packed into `packed` bytes. `name` appears in error messages."""
        self._stream, self._name, self._read = stream, name, 0
        self._most = max(_MOST_SMALL, _MOST_RATIO * packed)

    def readable(self) -> bool:
        """Always true, so that `io.BufferedReader` and `io.TextIOWrapper` take it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer. Raises InputError once more bytes came than the packed size allows."""
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._read += len(content)
        if self._read > self._most:
            raise InputError(
                f"{one_line(self._name, width=300)} unpacks to more than {self._most} bytes. "
                "Unpack it yourself if you trust it."
            )
        return len(content)

    def close(self) -> None:
        """Close the stream below too."""
        self._stream.close()
        super().close()


@contextlib.contextmanager
def machine_errors(path: Path) -> Iterator[None]:
    """Turn a full disk and its kin into a MachineError that names the path. Leave other errors as they are.

    Libraries that write through Rust report the system's error inside a message of their own.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        message = next((n for n in _MACHINE_ERRNOS if n == number or f"(os error {n})" in str(error)), None)
        if message is None:
            raise
        if message == errno.EROFS:
            raise MachineError(
                f"cannot write {path}: the place is read-only. Choose another one with --output-dir."
            ) from error
        raise MachineError(
            f"cannot write {path}: {os.strerror(message)}; free some space and run the same command again"
        ) from error


def refuse_links(folder: Path) -> None:
    """Reject a folder that contains a link to another folder, because files would be written elsewhere."""
    for root, folders, _ in os.walk(folder):
        for name in sorted(folders):
            if (path := Path(root, name)).is_symlink():
                raise InputError(_linked(path))


def _linked(path: Path) -> str:
    return (
        f"{one_line(str(path), width=300)} is a link, and nothing is written through a link, since it may lead "
        "anywhere; put what it leads to in its place, or choose another folder"
    )


def _opened(path: Path, flags: int) -> BinaryIO:
    """The file, to be written. A link is refused."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise InputError(_linked(path)) from error
        raise
    return os.fdopen(handle, "ab" if flags & os.O_APPEND else "r+b" if flags & os.O_RDWR else "wb")


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content, or a link without its target."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Write `path` atomically: a reader sees the old file or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    with machine_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # left by a killed process, or a stranger's link
        with _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path`, atomically."""
    with new_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Put UTF-8 text at `path`, atomically."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Put `value` as indented JSON at `path`, atomically. NaN and infinities are refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put `rows` as `write_json` does, without the text of all in memory. What two rows share is encoded once."""
    encode = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False).encode
    before: Mapping[str, Any] = {}
    texts: dict[str, bytes] = {}
    opening, closing = b"[\n  ", b"[]\n"
    with new_file(path) as file:
        for row in rows:
            for name, value in row.items():
                if name not in before or before[name] is not value:
                    indented = encode(value).replace("\n", "\n    ")
                    texts[name] = f"{encode(name)}: {indented}".encode()
            fields = b",\n    ".join(texts[name] for name in row)
            file.write(b"%b{\n    %b\n  }" % (opening, fields))
            before, opening, closing = row, b",\n  ", b"\n]\n"
        file.write(closing)


def read_json(path: Path, *, remedy: str = "") -> Any:
    """The JSON value in `path`. A damaged file is an InputError that names line, column and remedy."""
    return _parsed(read_bytes(path), path, 1, remedy)


def _parsed(content: bytes, path: Path, line: int, remedy: str = "") -> Any:
    """The JSON value in `content`, which begins at this line of a file."""
    try:
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        place, problem = line + error.lineno - 1, f", column {error.colno}: not JSON ({error.msg}). "
        raise InputError(f"{path}, line {place}{problem}{remedy or 'Correct it'}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {line}: not UTF-8 text. {remedy or 'Save it as UTF-8'}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {line}: JSON that cannot be read ({type(error).__name__}: {error})") from error


def json_line(value: Any) -> str:
    """`value` as one line of JSON Lines."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Put one JSON value a line at `path`, atomically, without holding all lines in memory."""
    with new_file(path) as file:
        file.writelines(json_line(row).encode() for row in rows)


def read_jsonl(path: Path) -> Iterator[Any]:
    """The JSON values in `path`, a line each. Blank lines are skipped. A bad line is an InputError with its number."""
    with open_input(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_MOST_LINE + 1), b""), 1):
            if len(line) > _MOST_LINE:
                raise InputError(f"{path}, line {number}: longer than {_MOST_LINE} bytes. Give shorter records.")
            if not line.strip():
                continue
            yield _parsed(line.rstrip(), path, number)


def drop_torn_line(path: Path) -> None:
    """Cut a log back to its last whole line, so that appending after a crash starts on a fresh one."""
    if not path.exists():
        return
    open_input(path).close()
    with _opened(path, os.O_RDWR) as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def read_log(path: Path) -> list[Any]:
    """Return the complete lines of a log, without a truncated last line. None if there is no log."""
    drop_torn_line(path)
    if path.exists():
        return list(read_jsonl(path))
    return []


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Add whole lines to a log and flush them to the disk, so that a kill loses none that was reported."""
    with machine_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder next to `path`, then rename it to `path`. An older folder is replaced.

    A replaced folder is moved aside first, since a folder cannot be renamed over a full one. A crash between the two
    renames leaves `path` absent, which every reader takes for "not made yet".
    """
    partial = path.with_name(f".{path.name}.partial")
    aside = path.with_name(f".{path.name}.replaced")
    with machine_errors(path):
        remove_folder(partial)
        remove_folder(aside)
        partial.mkdir(parents=True)
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        for file in sorted(p for p in partial.rglob("*") if p.is_file()):
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        # The names in the folder must be on the disk before it gets its final name.
        sync_folder(partial)
        if path.exists():
            os.replace(path, aside)
        os.replace(partial, path)
        sync_folder(path.parent)
        remove_folder(aside)


@contextlib.contextmanager
def locked(lock: Path, *, patience_seconds: float | None = 10.0) -> Iterator[None]:
    """Hold a file's lock, so that two commands never write one place. A dead process releases its lock.

    Waits up to `patience_seconds` (None: for ever), then raises InputError. A folder that is locked as a whole, by a
    lock in it, is refused if it holds links to folders.
    """
    if lock.name == ".lock":
        refuse_links(lock.parent)
    # Two consecutive commands of a script overlap for a moment.
    until = None if patience_seconds is None else time.monotonic() + patience_seconds
    while (handle := _take(lock)) is None:
        if until is not None and time.monotonic() > until:
            busy = lock.parent if lock.name == ".lock" else lock.parent / lock.stem.removeprefix(".")
            raise InputError(f"another command is running in {busy}. Wait for it or choose another folder")
        time.sleep(0.1)
    with handle:
        yield


@contextlib.contextmanager
def replacing(folder: Path, *, patience_seconds: float | None = 10.0) -> Iterator[None]:
    """Lock a folder that is written as a whole. The lock is next to it and is removed at the end."""
    lock = folder.absolute().with_name(f".{folder.absolute().name}.lock")
    with locked(lock, patience_seconds=patience_seconds):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextlib.contextmanager
def begun(lock: Path, announced: Collection[str]) -> Iterator[None]:
    """Hold the lock of a folder in which work begins, and leave nothing of work that is refused.

    After an InputError, a folder that contains only the lock and the files in `announced` is removed, with the parent
    folders made for it.
    """
    new_folders = [above for above in lock.parent.parents if not above.exists()]
    refused = False
    try:
        with locked(lock):
            try:
                yield
            except InputError:
                if {path.name for path in lock.parent.iterdir()} <= {lock.name, *announced}:
                    shutil.rmtree(lock.parent)
                    refused = True
                raise
    finally:
        for above in new_folders if refused else ():
            # Another process may have written there meanwhile.
            with contextlib.suppress(OSError):
                above.rmdir()


def _take(lock: Path) -> BinaryIO | None:
    """Return the locked file. None if another process holds it, or its folder was moved away."""
    with machine_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = _opened(lock, os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have moved the folder with its lock, and this lock would then have no effect.
        if lock.exists() and os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
            return handle
    except BlockingIOError:
        pass
    except OSError as error:
        handle.close()
        if error.errno not in _NO_LOCKS:
            raise
        raise InputError(
            f"the file system of {lock.parent} has no file locks ({os.strerror(error.errno)}), without which two "
            "commands could write one place. Choose a folder on a local disk, or have it mounted with flock"
        ) from error
    handle.close()
    return None


def sync_folder(path: Path) -> None:
    """Flush a folder's list of names, so that a rename survives a power failure. POSIX systems support this."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
