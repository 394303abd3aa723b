"""What a model that vLLM has built serves each layer with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from quark_format.modules import abstract

_KERNELS = ("fp8_linear", "ocp_mx_linear", "kernel", "experts_cls", "moe_kernel")
"""Attributes in which vLLM's schemes and methods keep their kernel."""


@dataclass
class Served:
    """Layers that are served alike: their abstract name, how many, by what and with which kernel.

    `package` is where the class that serves them comes from, `vllm` or `quark_format`.
    """

    name: str
    layers: int
    row: str
    scheme: str
    kernel: str
    package: str


def served(model: torch.nn.Module) -> list[Served]:
    """The layers of `model` that have a quantization method, grouped, in the model's order."""
    found: dict[tuple[str, str, str], Served] = {}
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is None:
            continue
        scheme = getattr(module, "scheme", None) or method
        choice = getattr(method, "choice", None)
        row = "unquantized" if choice is None else choice.row or "unquantized"
        one = Served(
            abstract(name),
            0,
            row,
            type(scheme).__name__,
            next(_kernels(scheme), ""),
            type(scheme).__module__.partition(".")[0],
        )
        found.setdefault((one.name, one.scheme, one.kernel), one).layers += 1
    return list(found.values())


def _kernels(scheme: Any) -> Iterator[str]:
    for attribute in _KERNELS:
        kernel = getattr(scheme, attribute, None)
        if kernel is not None:
            yield kernel.__name__ if isinstance(kernel, type) else type(kernel).__name__
