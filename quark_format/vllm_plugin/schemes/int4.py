"""vLLM's 4-bit integer weights on a CPU with AMX, their inputs left as they are."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear import CPUWNA16LinearKernel, MPLinearKernel
from vllm.model_executor.layers.quantization.quark.schemes import QuarkW4A16Int4


class FloatInputKernel(CPUWNA16LinearKernel):
    """vLLM's kernel as it runs without AMX.

    With AMX it quantizes inputs as well (`VLLM_CPU_INT4_W4A8`), and its tiles for float inputs end the
    process with an illegal instruction.
    """

    def _process_gptq_weights_w4a8(self, layer: torch.nn.Module) -> None:
        layer.use_w4a8 = False
        self._process_gptq_weights_w4a16(layer)
        layer.isa_hint = "vec"


class FloatInputInt4(QuarkW4A16Int4):
    """vLLM's scheme with that kernel in the place of vLLM's, where vLLM chooses it."""

    kernel: MPLinearKernel | None

    def create_weights(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        """Register the parameters.

        Raises:
            ValueError: vLLM has no kernel for the layer.
        """
        super().create_weights(layer, *args, **kwargs)
        chosen = self.kernel
        if isinstance(chosen, CPUWNA16LinearKernel):
            self.kernel = FloatInputKernel(chosen.config, chosen.w_q_name, chosen.w_s_name, chosen.w_zp_name)
