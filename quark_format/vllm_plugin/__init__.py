"""vLLM loads Quark checkpoints through the declared tables: `vllm.general_plugins` calls `register`."""

from __future__ import annotations

import os

SWITCH = "QUARK_FORMAT_VLLM"
"""Environment variable that turns the plugin off where it is 0."""


def register() -> None:
    """Put the plugin in the place of vLLM's own reader of Quark checkpoints, in every process of vLLM."""
    if os.environ.get(SWITCH, "1") == "0":
        return
    from vllm.model_executor.layers.quantization import (  # noqa: PLC0415 - vLLM is imported by vLLM alone
        register_quantization_config,
    )

    from quark_format.vllm_plugin.config import QuarkFormatConfig, QuarkFp8Config  # noqa: PLC0415

    register_quantization_config("quark")(QuarkFormatConfig)
    register_quantization_config("fp8")(QuarkFp8Config)
