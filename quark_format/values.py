"""Reads the values of tensors from untrusted files: small ones whole, large ones piece by piece.

Pieces are read into a few buffers and never mapped: a mapped file that shrinks while it is read ends the
process. numpy is imported when the first value is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from quark_format.safe_files import CannotOpenError, inside, open_regular, read_exactly
from quark_format.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from quark_format.safetensors_header import Tensor

_LENGTH_BYTES = 8
_WORKERS = 2
_AHEAD = 2
_RUN = 8
_FEW = 64
_GREATEST = {255: "<u1", 127: "<i1"}
"""Codes of one byte that no other is greater than, as such integers."""
T = TypeVar("T")


class Data:
    """The data section of one safetensors file."""

    def __init__(self, files: Sequence[BinaryIO]) -> None:
        """Find where the data begins; `files` are the same file, opened unbuffered once for each worker.

        Raises:
            CannotOpenError: the file cannot be read.
        """
        self._files = files
        try:
            self._begin = _LENGTH_BYTES + int.from_bytes(read_exactly(files[0], _LENGTH_BYTES), "little")
        except OSError as error:
            raise CannotOpenError(str(error.strerror or error)) from None
        self._idle: SimpleQueue[tuple[BinaryIO, bytearray]] = SimpleQueue()
        for file in files:
            self._idle.put((file, bytearray()))
        self._pool = ThreadPoolExecutor(len(files))

    def read(self, tensor: Tensor) -> bytes:
        """All bytes of a small tensor.

        Raises:
            CannotOpenError: the file has ended before them or cannot be read.
        """
        return b"".join(self.each(tensor, lambda _, piece: bytes(piece)))

    def each(self, tensor: Tensor, look: Callable[[int, memoryview], T]) -> Iterator[T]:
        """What `look` makes of each piece of a tensor, in order; it is given the piece's number and bytes.

        A piece fits a processor's cache and is gone when `look` returns. Long runs of pieces are read and
        looked at at once.

        Raises:
            CannotOpenError: the file has ended before them or cannot be read.
        """
        size = table("values.json")["piece_bytes"]
        pieces = range(tensor.start, tensor.end, size)
        waiting: deque[Future[list[T]]] = deque()
        for first in range(0, len(pieces), _RUN):
            starts = pieces[first : first + _RUN]
            work = partial(self._look, starts, tensor.end, first, look)
            if len(starts) == len(pieces):
                yield from work()
                return
            waiting.append(self._pool.submit(work))
            if len(waiting) > _AHEAD * len(self._files):
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()

    def _look(self, starts: range, end: int, number: int, look: Callable[[int, memoryview], T]) -> list[T]:
        file, buffer = self._idle.get()
        try:
            made = []
            for at, start in enumerate(starts, number):
                if len(buffer) < min(starts.step, end - start):
                    buffer = bytearray(min(starts.step, end - start))
                view = memoryview(buffer)[: min(starts.step, end - start)]
                self._fill(file, view, start)
                made.append(look(at, view))
            return made
        finally:
            self._idle.put((file, buffer))

    def _fill(self, file: BinaryIO, view: memoryview, start: int) -> None:
        filled = 0
        try:
            file.seek(self._begin + start)
            while filled < len(view):
                count = file.readinto(view[filled:])  # type: ignore[attr-defined]
                if not count:
                    raise CannotOpenError("it ends before its tensors do")
                filled += count
        except (OverflowError, ValueError) as error:
            raise CannotOpenError(str(error)) from None
        except OSError as error:
            if isinstance(error, CannotOpenError):
                raise
            raise CannotOpenError(str(error.strerror or error)) from None

    def close(self) -> None:
        """Wait for what is being read, and close the file."""
        self._pool.shutdown(cancel_futures=True)
        for file in self._files:
            file.close()


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Data]:
    """Open the data of the file `name` in the resolved `folder`.

    Raises:
        CannotOpenError: it is not there, not regular, not permitted or outside the folder.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(open_regular(inside(folder, name))[0]) for _ in range(_WORKERS)]
        yield stack.enter_context(closing(Data(files)))


@cache
def _byte_numbers(name: str) -> NDArray[np.float64]:
    """The value of each of the 256 codes of a one-byte float."""
    import numpy  # noqa: PLC0415

    row = table("values.json")["numbers"][name]
    values = numpy.empty(256)
    sign_bit = 1 << (row["exponent"] + row["mantissa"])
    for code in range(256):
        magnitude = code % sign_bit if row["signed"] else code
        exponent, mantissa = divmod(magnitude, 1 << row["mantissa"])
        fraction = mantissa / (1 << row["mantissa"])
        subnormal = exponent == 0 and row.get("zero", True)
        value = (
            fraction * 2.0 ** (1 - row["bias"])
            if subnormal
            else (1 + fraction) * 2.0 ** (exponent - row["bias"])
        )
        values[code] = -value if row["signed"] and code >= sign_bit else value
    values[row["nan"]] = numpy.nan
    return values


def numbers(raw: bytes, dtype: str, meaning: str | None = None) -> NDArray[Any] | None:
    """The numbers that `raw` holds as `dtype`; None where only a kernel knows.

    `meaning` is the spec's name for a float stored as plain bytes.
    """
    import numpy  # noqa: PLC0415

    rows = table("values.json")
    for name in (meaning, dtype):
        if name in rows["numbers"] and rows["codes"][dtype]["view"] == "<u1":
            known: NDArray[Any] = _byte_numbers(str(name))[numpy.frombuffer(raw, "<u1")]
            return known
    if dtype in rows["floats"]:
        return numpy.frombuffer(raw, rows["floats"][dtype])
    if dtype in rows["upper_half"]:
        return (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    if dtype in rows["integers"]:
        return numpy.frombuffer(raw, rows["integers"][dtype])
    return None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one piece of a tensor is like: `codes` of them, of which `code` is the first.

    `unusable` counts NaN and infinite codes, the first of which is the one at `wrong`; `constant` says that
    all are the same code. Of `counted` codes `greatest` have the greatest finite magnitude.
    """

    codes: int
    code: int
    constant: bool
    unusable: int = 0
    wrong: int = 0
    counted: int = 0
    greatest: int = 0


class Survey:
    """What the codes of one large tensor are like, gathered from its pieces in order.

    `unusable` counts NaN and infinite codes and `first` is the place of the first one; `constant` says that
    all are the same code; `saturated` is the share of the greatest finite magnitude in the pieces counted.
    """

    def __init__(self, dtype: str) -> None:
        """Begin with nothing seen of a tensor of `dtype`."""
        row = table("values.json")["codes"].get(dtype, {"view": "<u1"})
        self._view: str = row["view"]
        self._mask: int | None = row.get("mask")
        self._finite: int = row.get("finite", 0)
        nan = table("values.json")["numbers"].get(dtype, {}).get("nan", [])
        self._nan = {code: _GREATEST[code] for code in nan if code in _GREATEST}
        self._nan_is_greatest = bool(nan) and len(self._nan) == len(nan)
        self._every = table("values.json")["saturation"]["sampled"]
        self._code: int | None = None
        self._seen = 0
        self._counted = 0
        self._greatest = 0
        self.unusable = 0
        self.first: int | None = None
        self.constant = True

    @property
    def saturated(self) -> float:
        """The share of codes of the greatest finite magnitude."""
        return self._greatest / self._counted if self._counted else 0.0

    def add(self, seen: Seen) -> None:
        """Take in what the next piece is like."""
        if self._code is None:
            self._code = seen.code
        self.constant = self.constant and seen.constant and seen.code == self._code
        if seen.unusable and self.first is None:
            self.first = self._seen + seen.wrong
        self.unusable += seen.unusable
        self._seen += seen.codes
        self._counted += seen.counted
        self._greatest += seen.greatest

    def look(self, number: int, piece: memoryview) -> Seen:
        """What the piece `number` is like, of which every few count for saturation; for several threads."""
        import numpy  # noqa: PLC0415

        codes = numpy.frombuffer(piece, self._view)
        constant = bool((codes[:_FEW] == codes[0]).all() and (codes == codes[0]).all())
        sampled = number % self._every == 0
        if self._mask is None or not (sampled or self._may_hold_unusable(codes)):
            return Seen(len(codes), int(codes[0]), constant)
        magnitude = codes & codes.dtype.type(self._mask)
        unusable = wrong = counted = greatest = 0
        if int(magnitude.max()) > self._finite:
            beyond = magnitude > self._finite
            wrong, unusable = int(beyond.argmax()), int(numpy.count_nonzero(beyond))
        if sampled:
            counted = len(codes)
            greatest = int(numpy.count_nonzero(magnitude == self._finite))
        return Seen(len(codes), int(codes[0]), constant, unusable, wrong, counted, greatest)

    def _may_hold_unusable(self, codes: NDArray[Any]) -> bool:
        """Whether one of the codes that are NaN is there; True for a dtype where other codes are greater."""
        if not self._nan_is_greatest:
            return True
        return any(int(codes.view(view).max()) == code for code, view in self._nan.items())
