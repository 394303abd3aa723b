"""Weights whose rows Acme's kernel has to pad."""

from __future__ import annotations

from collections.abc import Iterator

from quark_format.validators.context import Context
from quark_format.validators.findings import Finding, finding

ROWS = 128


def check(context: Context) -> Iterator[Finding]:
    """Find quantized weights whose rows are no multiple of ROWS."""
    for name, module in context.modules.by_name.items():
        weight = module.weight
        if module.scales and weight is not None and weight.shape[0] % ROWS:
            yield finding(
                "ACME001",
                module=name,
                tensor=weight.name,
                actual=weight.shape[0],
                expected=ROWS,
            )
