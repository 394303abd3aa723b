"""Whether a target takes a tensor in another shape than the format's: `shapes` of its loading table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quark_format.layouts import Deviation, Dim


def takes(
    row: Mapping[str, Any], deviation: Deviation, stored: tuple[int, ...], dim: Dim | None, *, joined: bool
) -> bool:
    """Whether the target takes a tensor of the shape `stored` by `row`.

    `dim` is the dimension of the module that ranks share; a `joined` module is a part of another one.
    """
    expected = deviation.shape or ()
    if row.get("column") and stored == (*expected, 1):
        return True
    if len(stored) != len(expected):
        return False
    if row.get("filled") and (joined or stored[-1] < expected[-1]):
        return all(one in (1, other) for one, other in zip(stored[:-1], expected[:-1], strict=True))
    shared = _shared_axis(deviation, dim)
    pairs = enumerate(zip(stored, expected, strict=True))
    return all(one == other or (at == shared and one > other) for at, (one, other) in pairs)


def _shared_axis(deviation: Deviation, dim: Dim | None) -> int | None:
    """The axis of the tensor that ranks share, of which each takes its part and leaves the rest."""
    entry = next((one for one in deviation.row.entries if one.suffix == deviation.suffix), None)
    shape = entry.shape if entry and isinstance(entry.shape, tuple) else ()
    return next((at for at, term in enumerate(shape) if term.of == dim), None)
