"""Reads the values of tensors from untrusted files: small ones whole, large ones piece by piece.

Pieces are read into one buffer and never mapped: a mapped file that shrinks while it is read ends the
process. numpy is imported when the first value is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from quark_format.safe_files import CannotOpenError, inside, open_regular, read_exactly
from quark_format.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from quark_format.safetensors_header import Tensor

_LENGTH_BYTES = 8
_BUFFERS = 2
_SLICE = 1 << 19


class Data:
    """The data section of one safetensors file."""

    def __init__(self, file: BinaryIO) -> None:
        """Find where the data of the open, unbuffered `file` begins.

        Raises:
            CannotOpenError: the file cannot be read.
        """
        self._file = file
        try:
            self._begin = _LENGTH_BYTES + int.from_bytes(read_exactly(file, _LENGTH_BYTES), "little")
        except OSError as error:
            raise CannotOpenError(str(error.strerror or error)) from None
        self._buffers: list[bytearray] = []
        self._pool = ThreadPoolExecutor(1)

    def read(self, tensor: Tensor) -> bytes:
        """All bytes of a small tensor.

        Raises:
            CannotOpenError: the file has ended before them or cannot be read.
        """
        return b"".join(bytes(piece) for piece in self.pieces(tensor))

    def pieces(self, tensor: Tensor) -> Iterator[memoryview]:
        """The bytes of a tensor, piece by piece; a piece is overwritten two pieces later.

        While one piece is looked at, the next is read.

        Raises:
            CannotOpenError: the file has ended before them or cannot be read.
        """
        size = table("values.json")["chunk_bytes"]
        spans = [(at, min(at + size, tensor.end)) for at in range(tensor.start, tensor.end, size)]
        if len(spans) == 1:
            yield self._fill(spans[0], 0)
        elif spans:
            ahead = self._pool.submit(self._fill, spans[0], 0)
            for number, span in enumerate(spans[1:], 1):
                piece = ahead.result()
                ahead = self._pool.submit(self._fill, span, number % _BUFFERS)
                yield piece
            yield ahead.result()

    def _fill(self, span: tuple[int, int], number: int) -> memoryview:
        start, end = span
        while len(self._buffers) <= number:
            self._buffers.append(bytearray(table("values.json")["chunk_bytes"]))
        view = memoryview(self._buffers[number])[: end - start]
        filled = 0
        try:
            self._file.seek(self._begin + start)
            while filled < len(view):
                count = self._file.readinto(view[filled:])  # type: ignore[attr-defined]
                if not count:
                    raise CannotOpenError("it ends before its tensors do")
                filled += count
        except (OverflowError, ValueError) as error:
            raise CannotOpenError(str(error)) from None
        except OSError as error:
            if isinstance(error, CannotOpenError):
                raise
            raise CannotOpenError(str(error.strerror or error)) from None
        return view

    def close(self) -> None:
        """Wait for what is being read, and close the file."""
        self._pool.shutdown(cancel_futures=True)
        self._file.close()


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Data]:
    """Open the data of the file `name` in the resolved `folder`.

    Raises:
        CannotOpenError: it is not there, not regular, not permitted or outside the folder.
    """
    file, _ = open_regular(inside(folder, name))
    with file, closing(Data(file)) as data:
        yield data


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


class Survey:
    """What the codes of one large tensor are like, gathered piece by piece.

    `unusable` counts NaN and infinite codes and `first` is the place of the first one; `constant` says that
    all are the same code; `saturated` is the share of the greatest finite magnitude in the pieces counted.
    """

    def __init__(self, dtype: str) -> None:
        """Begin with nothing seen of a tensor of `dtype`."""
        row = table("values.json")["codes"].get(dtype, {"view": "<u1"})
        self._view: str = row["view"]
        self._mask: int | None = row.get("mask")
        self._finite: int = row.get("finite", 0)
        self._every = table("values.json")["saturation"]["sampled"]
        self._scratch: Any = None
        self._code: Any = None
        self._seen = 0
        self._slices = 0
        self._counted = 0
        self._greatest = 0
        self.unusable = 0
        self.first: int | None = None
        self.constant = True

    @property
    def saturated(self) -> float:
        """The share of codes of the greatest finite magnitude."""
        return self._greatest / self._counted if self._counted else 0.0

    def add(self, piece: memoryview) -> None:
        """Look at the next piece, in slices that a processor's cache holds."""
        import numpy  # noqa: PLC0415

        every = numpy.frombuffer(piece, self._view)
        step = _SLICE // every.itemsize
        for at in range(0, len(every), step):
            codes = every[at : at + step]
            if self._code is None:
                self._code = codes[0]
            if self.constant:
                self.constant = bool((codes == self._code).all())
            if self._mask is not None:
                self._look(numpy, codes)
            self._seen += len(codes)
            self._slices += 1

    def _look(self, numpy: Any, codes: Any) -> None:
        if self._scratch is None or len(self._scratch) < len(codes):
            self._scratch = numpy.empty_like(codes)
        magnitude = numpy.bitwise_and(codes, codes.dtype.type(self._mask), out=self._scratch[: len(codes)])
        greatest = int(magnitude.max())
        if greatest > self._finite:
            wrong = magnitude > self._finite
            if self.first is None:
                self.first = self._seen + int(wrong.argmax())
            self.unusable += int(numpy.count_nonzero(wrong))
        if self._slices % self._every == 0:
            self._counted += len(codes)
            if greatest >= self._finite:
                self._greatest += int(numpy.count_nonzero(magnitude == self._finite))
