"""Opens the files of an untrusted folder: regular ones, inside it, and never more of them than asked for."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from quark_format.tables import table

_STRUCTURE = frozenset("/\\:")
"""A name without these, and not `..`, is a file of its folder on every system."""
_SPECIAL = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class CannotOpenError(OSError):
    """A file is not there, not regular or not permitted; the exception's text says which."""


class AbsentError(CannotOpenError):
    """There is no such file."""


class OutsideFolderError(CannotOpenError):
    """A name or link leads out of the folder, to `target`, so the file is not opened."""

    def __init__(self, target: str) -> None:
        """Say that a name or link leads to `target`."""
        super().__init__(f"it leads to `{target}`, outside the folder")
        self.target = target


def names_escape(name: str) -> bool:
    """Say whether `name`, a path relative to a folder, is absolute or climbs out of it on any system."""
    path = PureWindowsPath(name)
    return bool(path.drive or path.root) or ".." in path.parts


def is_nested(name: str) -> bool:
    """Say whether `name` is more than a bare file name on any system."""
    return len(PureWindowsPath(name).parts) > 1


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """Open the regular file `path`, unbuffered and without waiting for a pipe's writer.

    Also return its size in bytes.

    Raises:
        CannotOpenError: no such file (AbsentError), no regular file, or no permission.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise CannotOpenError(f"it is {_SPECIAL.get(stat.S_IFMT(mode), 'no regular file')}")
        descriptor = os.open(path, flags)
    except CannotOpenError:
        raise
    except FileNotFoundError:
        if path.is_symlink():
            raise CannotOpenError("its link leads nowhere") from None
        raise AbsentError("there is no such file") from None
    except (OSError, ValueError) as error:
        raise CannotOpenError(f"it cannot be opened ({getattr(error, 'strerror', None) or error})") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise CannotOpenError("it is no regular file")
    return open(descriptor, "rb", buffering=0), status.st_size


def inside(folder: Path, name: str) -> Path:
    """Return the path of `name` in the resolved `folder`.

    A link may lead to another place inside the folder, or be one of the hub cache's, whose revision folders
    hold links into the same repository's folder of contents.

    Raises:
        OutsideFolderError: the name or its link leads elsewhere.
    """
    plain = name != os.pardir and _STRUCTURE.isdisjoint(name)
    if not plain and names_escape(name):
        raise OutsideFolderError(name)
    path = folder / name
    try:
        if (plain or not is_nested(name)) and not path.is_symlink():
            return path
        target = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path
    if target.is_relative_to(folder):
        return path
    cache = table("safetensors.json")["files"]["cache"]
    repositories = (parent.parent for parent in folder.parents if parent.name == cache["revisions"])
    if path.parent == folder and target.parent in (place / cache["contents"] for place in repositories):
        return path
    raise OutsideFolderError(str(target))


def read_bounded(folder: Path, name: str, limit: int) -> bytes:
    """Return the content of the file `name` in the resolved `folder`, of at most `limit` bytes.

    Raises:
        CannotOpenError: it is not there, not regular, not permitted, outside the folder, or larger.
    """
    file, size = open_regular(inside(folder, name))
    with file:
        if size > limit:
            raise CannotOpenError(f"it has {size:,} bytes, more than {limit:,}")
        try:
            return read_exactly(file, size)
        except OSError as error:
            raise CannotOpenError(f"it cannot be read ({error.strerror or error})") from None


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """Read `size` bytes from the current place of the unbuffered `file`, or fewer if it ends before.

    Raises:
        OSError: the system cannot read it.
    """
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
