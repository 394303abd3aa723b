"""The numbers behind each quantized dtype (`schema/elements.json`), and tensors of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch

from quark_format.tables import table

ZERO_SCALE: float = table("elements.json")["zero_scale"]
"""What stands for a scale of zero, as in amd-quark."""


@dataclass(frozen=True, slots=True)
class Packing:
    """`codes` codes of `bits` bits in a word of `bytes` little-endian bytes.

    The code at place k, counted from the lowest bits, is the logical element `order[k]`.
    """

    bits: int
    bytes: int
    codes: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """One dtype of a spec; `cast` is the torch dtype of its own, None where torch has none."""

    name: str
    number: str
    signed: bool
    exponent: int
    mantissa: int
    bias: int
    zero: bool
    largest_exponent: int
    minimum: float
    maximum: float
    cast: torch.dtype | None
    packing: Packing | None


@cache
def element(name: str, pack_method: str | None = None) -> Element:
    """The dtype `name` of a spec; `pack_method` orders the codes of a dtype without an order of its own.

    Without a declared pack method such a dtype cannot be unpacked.

    Raises:
        KeyError: the dtype is not declared.
    """
    declared = table("elements.json")
    facts = declared["elements"][name]
    packing = facts.get("packing")
    if packing is not None:
        order = packing.get("places") or declared["pack_orders"].get(pack_method, ())
        packing = Packing(packing["bits"], packing["bytes"], packing["codes"], tuple(order))
    cast = facts.get("torch")
    return Element(
        name=name,
        number=facts["number"],
        signed=facts.get("signed", False),
        exponent=facts.get("exponent", 0),
        mantissa=facts.get("mantissa", 0),
        bias=facts.get("bias", 0),
        zero=facts.get("zero", True),
        largest_exponent=facts.get("largest_exponent", 0),
        minimum=facts["minimum"],
        maximum=facts["maximum"],
        cast=None if cast is None else getattr(torch, cast),
        packing=packing,
    )


def known(name: str) -> bool:
    """Whether `name` is a declared dtype."""
    return name in table("elements.json")["elements"]


def float_values(of: Element) -> list[float]:
    """The value of each code of a float, by code; what lies beyond its finite range is nan."""
    signs = (1.0, -1.0) if of.signed else (1.0,)
    values = []
    for sign, exponent, mantissa in product(signs, range(1 << of.exponent), range(1 << of.mantissa)):
        subnormal = exponent == 0 and of.zero
        fraction = mantissa / (1 << of.mantissa) + (0.0 if subnormal else 1.0)
        value = fraction * 2.0 ** (max(exponent, int(of.zero)) - of.bias)
        values.append(sign * value if value <= of.maximum else float("nan"))
    return values


@cache
def _values(of: Element, device: torch.device) -> torch.Tensor:
    return torch.tensor(float_values(of), dtype=torch.float32, device=device)


def _decode_float(codes: torch.Tensor, of: Element) -> torch.Tensor:
    if codes.is_floating_point():
        return codes.to(torch.float32)
    return _values(of, codes.device)[codes.to(torch.int32)]


def _decode_integer(codes: torch.Tensor, of: Element) -> torch.Tensor:
    if of.packing is not None and of.signed:
        codes = codes - ((codes & (1 << (of.packing.bits - 1))) << 1)
    return codes.to(torch.float32)


_DECODERS: dict[str, Callable[[torch.Tensor, Element], torch.Tensor]] = {
    "float": _decode_float,
    "integer": _decode_integer,
}


def decode(stored: torch.Tensor, of: Element) -> torch.Tensor:
    """The float32 values of stored codes, unpacked along the last axis.

    `stored` holds words (uint8 or int32) of a packed dtype, one code an element otherwise.
    """
    return _DECODERS[of.number](stored if of.packing is None else unpack(stored, of.packing), of)


def unpack(words: torch.Tensor, packing: Packing) -> torch.Tensor:
    """The int32 codes of `words`, not sign-extended; the last axis grows to hold them in logical order."""
    raw = words.contiguous().view(torch.uint8).unflatten(-1, (-1, packing.bytes)).to(torch.int32)
    word = raw[..., 0]
    for at in range(1, packing.bytes):
        word = word | (raw[..., at] << (8 * at))
    shifts = torch.tensor(_shifts(packing), dtype=torch.int32, device=words.device)
    return ((word.unsqueeze(-1) >> shifts) & ((1 << packing.bits) - 1)).flatten(-2)


def _shifts(packing: Packing) -> Sequence[int]:
    return [packing.order.index(logical) * packing.bits for logical in range(packing.codes)]
