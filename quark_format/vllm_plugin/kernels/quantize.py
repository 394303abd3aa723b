"""Quantization of activations and back, in one go, with the rounding and the scales of amd-quark 0.13.

Every function keeps amd-quark's dtypes: what it computes in the model's dtype is computed in it here, so that
the values agree bit for bit. Source: amd-quark 0.13 torch/kernel/hw_emulation/hw_emulation_interface.py and
torch/quantization/observer/observer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from quark_format.tables import table
from quark_format.vllm_plugin.kernels.elements import ZERO_SCALE, Element, element

_SIGNIFICAND = 23
_SIGN_AND_EXPONENT = -(1 << _SIGNIFICAND)


def round_to_element(x: torch.Tensor, of: Element) -> torch.Tensor:
    """`x` in float32, clamped to the range of a float and rounded half to even onto its values."""
    _, exponent = torch.frexp(x)
    step = (exponent - 1).clamp(min=1 - of.bias) - of.mantissa
    rounded = torch.ldexp(torch.round(torch.ldexp(x, -step)), step)
    return rounded.clamp(of.minimum, of.maximum)


def _cast(x: torch.Tensor, of: Element) -> torch.Tensor:
    clamped = x.clamp(of.minimum, of.maximum)
    if of.cast is not None:
        return clamped.to(of.cast).to(x.dtype)
    return round_to_element(clamped.to(torch.float32), of).to(x.dtype)


def _fake_float(x: torch.Tensor, scale: torch.Tensor, _: torch.Tensor | None, of: Element) -> torch.Tensor:
    if scale.dim():
        scale = scale.to(x.dtype)
    return _cast(x / scale, of) * scale


def _fake_integer(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, of: Element
) -> torch.Tensor:
    wide, scale = x.to(torch.float32), scale.to(torch.float32)
    offset = torch.zeros_like(scale) if zero_point is None else zero_point.to(torch.float32)
    code = (torch.round(wide * (1.0 / scale)) + offset).clamp(of.minimum, of.maximum)
    return ((code - offset) * scale).to(x.dtype)


_FAKE: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, Element], torch.Tensor]] = {
    "float": _fake_float,
    "integer": _fake_integer,
}


def quantize_dequantize(
    x: torch.Tensor, of: Element, scale: torch.Tensor, zero_point: torch.Tensor | None = None
) -> torch.Tensor:
    """`x` rounded onto the values of `of` times `scale`, in the dtype of `x`; scale and offset broadcast."""
    return _FAKE[of.number](x, scale, zero_point, of)


def power_of_two_even(amax: torch.Tensor, of: Element) -> torch.Tensor:
    """The float32 power of two for groups with the largest magnitude `amax`, its mantissa rounded to even.

    Source: OCP MX 1.0, section 6.3, with amd-quark's rounding (torch/quantization/utils.py:272-309).
    """
    bits = amax.to(torch.float32).view(torch.int32)
    rounded = (bits + (1 << (_SIGNIFICAND - of.mantissa - 1))) & _SIGN_AND_EXPONENT
    exponent = (rounded >> _SIGNIFICAND) - 127 - of.largest_exponent
    return torch.exp2(exponent.clamp(-127, 127).to(torch.float32))


def _power_of_two(
    amax: torch.Tensor, of: Element, to_integer: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    scale = torch.pow(2, to_integer(torch.log2(amax)) - of.largest_exponent)
    return scale.masked_fill(scale == 0.0, ZERO_SCALE)


def power_of_two_floor(amax: torch.Tensor, of: Element) -> torch.Tensor:
    """The power of two for groups with the largest magnitude `amax`, its exponent rounded down."""
    return _power_of_two(amax, of, torch.floor)


def power_of_two_ceil(amax: torch.Tensor, of: Element) -> torch.Tensor:
    """The power of two for groups with the largest magnitude `amax`, its exponent rounded up."""
    return _power_of_two(amax, of, torch.ceil)


_POWERS: dict[str | None, Callable[[torch.Tensor, Element], torch.Tensor]] = {
    None: power_of_two_even,
    "even": power_of_two_even,
    "floor": power_of_two_floor,
    "ceil": power_of_two_ceil,
}


def _range_scale(amax: torch.Tensor, of: Element) -> torch.Tensor:
    scale = torch.div(amax, of.maximum)
    return scale.masked_fill(scale == 0.0, ZERO_SCALE)


def _e8m0_scale(
    amax: torch.Tensor, of: Element, spec: Mapping[str, Any], _: torch.dtype | None
) -> torch.Tensor:
    return _POWERS[spec.get("scale_calculation_mode")](amax, of)


def _float_scale(
    amax: torch.Tensor, of: Element, _: Mapping[str, Any], dtype: torch.dtype | None
) -> torch.Tensor:
    return _range_scale(amax if dtype is None else amax.to(dtype), of)


def _e5m3_scale(
    amax: torch.Tensor, of: Element, _: Mapping[str, Any], __: torch.dtype | None
) -> torch.Tensor:
    scale = _range_scale(amax, of)
    return round_to_element(scale.to(torch.float32), element("e5m3")).to(scale.dtype)


def _e4m3_scale(
    amax: torch.Tensor, of: Element, _: Mapping[str, Any], dtype: torch.dtype | None
) -> torch.Tensor:
    grid = element("fp8_e4m3")
    wide = amax.to(torch.float32)
    both = grid.maximum * (of.maximum / wide.max())
    scale = (wide / of.maximum * both).to(grid.cast).to(torch.float32) / both
    return scale if dtype is None else scale.to(dtype)


_SCALES: dict[
    str | None, Callable[[torch.Tensor, Element, Mapping[str, Any], torch.dtype | None], torch.Tensor]
] = {
    None: _float_scale,
    "float32": _float_scale,
    "e8m0": _e8m0_scale,
    "e5m3": _e5m3_scale,
    "e4m3": _e4m3_scale,
}

_SCALE_DTYPES: dict[str | None, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def _float_parameters(
    low: torch.Tensor, high: torch.Tensor, of: Element, spec: Mapping[str, Any]
) -> tuple[torch.Tensor, None]:
    amax = torch.maximum(low.clamp(max=0).abs(), high.clamp(min=0).abs())
    dtype = _SCALE_DTYPES.get(spec.get("scale_type"))
    by_format = spec.get("observer_cls") in _scale_format_observers()
    scale = _SCALES[spec.get("scale_format") if by_format else None](amax, of, spec, dtype)
    return (scale if dtype is None else scale.to(dtype)), None


@cache
def _scale_format_observers() -> frozenset[str]:
    return frozenset(table("elements.json")["scale_format_observers"])


def _integer_parameters(
    low: torch.Tensor, high: torch.Tensor, of: Element, spec: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    low, high = low.clamp(max=0), high.clamp(min=0)
    least = torch.tensor(ZERO_SCALE, device=low.device)
    span = of.maximum - of.minimum
    dtype = _SCALE_DTYPES.get(spec.get("scale_type"))
    if spec.get("symmetric"):
        scale = torch.max(torch.max(-low, high) / (span / 2), least)
        return (scale if dtype is None else scale.to(dtype)), None
    scale = torch.max((high - low) / span, least)
    zero_point = (
        (of.minimum - torch.round(low / scale)).to(torch.int32).clamp(int(of.minimum), int(of.maximum))
    )
    return (scale if dtype is None else scale.to(dtype)), zero_point


_PARAMETERS: dict[
    str,
    Callable[
        [torch.Tensor, torch.Tensor, Element, Mapping[str, Any]], tuple[torch.Tensor, torch.Tensor | None]
    ],
] = {"float": _float_parameters, "integer": _integer_parameters}


@dataclass(frozen=True, slots=True)
class Granularity:
    """Over what one scale of an activation [tokens, features] reaches."""

    over_tokens: bool
    grouped: bool


GRANULARITIES = {
    "per_tensor": Granularity(over_tokens=True, grouped=False),
    "per_channel": Granularity(over_tokens=False, grouped=False),
    "per_group": Granularity(over_tokens=False, grouped=True),
}
"""By qscheme. `per_channel` of an activation is per token: its channels are the tokens."""


class ActivationQuantizer:
    """Quantizes and dequantizes activations as one spec says.

    A static scale that is not stored is calculated from each activation.

    Args:
        stages: the spec of the activation, one or, with a quantized scale, two stages
        scale, zero_point: float32 and integer scalars of a static first stage
        scale_2: float32 scalar of a static second stage, which quantizes the scales of the first
    """

    def __init__(
        self,
        stages: tuple[Mapping[str, Any], ...],
        scale: torch.Tensor | None = None,
        zero_point: torch.Tensor | None = None,
        scale_2: torch.Tensor | None = None,
    ) -> None:
        """Look up what does not depend on the activation."""
        self._spec, *rest = stages
        self._element = element(self._spec["dtype"])
        self._granularity = GRANULARITIES[self._spec["qscheme"]]
        self._scale_element = element(rest[0]["dtype"]) if rest else None
        self.scale, self.zero_point, self.scale_2 = scale, zero_point, scale_2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [..., features] quantized and dequantized, in the dtype of `x`."""
        if not self._granularity.grouped:
            scale, zero_point = (self.scale, self.zero_point) if self.scale is not None else self._observed(x)
            return _FAKE[self._element.number](x, scale, zero_point, self._element)
        features, size = x.shape[-1], self._spec["group_size"]
        blocks = F.pad(x, (0, -features % size)).unflatten(-1, (-1, size))
        scale, zero_point = self._observed(blocks)
        wide = blocks.to(torch.float32)
        if self._scale_element is None:
            divisor = scale.masked_fill(scale == 0.0, ZERO_SCALE).to(torch.float32)
            values = _FAKE[self._element.number](wide, divisor, zero_point, self._element)
        else:
            values = self._with_quantized_scale(wide, scale, self._scale_element)
        return values.flatten(-2)[..., :features].to(x.dtype)

    def equals(self, other: ActivationQuantizer | None) -> bool:
        """Whether `other` has the same stored scales and zero points."""
        names = ("scale", "zero_point", "scale_2")
        return other is not None and all(same(getattr(self, name), getattr(other, name)) for name in names)

    def _with_quantized_scale(self, wide: torch.Tensor, scale: torch.Tensor, of: Element) -> torch.Tensor:
        """Blocks quantized with a quantized scale; one that becomes zero makes its block zero."""
        scale_2 = scale.to(torch.float32).max() / of.maximum if self.scale_2 is None else self.scale_2
        scale = _fake_float(scale.to(torch.float32), scale_2, None, of)
        return _cast(wide / scale.masked_fill(scale == 0.0, ZERO_SCALE), self._element) * scale

    def _observed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._granularity.over_tokens:
            low, high = torch.aminmax(x)
        else:
            low, high = torch.aminmax(x, dim=-1, keepdim=True)
        return _PARAMETERS[self._element.number](low, high, self._element, self._spec)


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two tensors, or None, are equal."""
    return one is other if one is None or other is None else torch.equal(one, other)
