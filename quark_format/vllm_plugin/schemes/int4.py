"""vLLM's 4-bit integer weights on a CPU with AMX, their inputs left as they are."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear import CPUWNA16LinearKernel, MPLinearKernel
from vllm.model_executor.layers.quantization.quark.schemes import QuarkW4A16Int4


class FloatInputKernel(CPUWNA16LinearKernel):
    """vLLM's kernel, which with AMX also quantizes inputs (`VLLM_CPU_INT4_W4A8`): without that."""

    def _process_gptq_weights_w4a8(self, layer: torch.nn.Module) -> None:
        layer.use_w4a8 = False
        self._process_gptq_weights_w4a16(layer)


class FloatInputInt4(QuarkW4A16Int4):
    """vLLM's scheme with that kernel in the place of vLLM's, where vLLM chooses it."""

    kernel: MPLinearKernel | None

    def create_weights(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        """Register the parameters.

        vLLM does not ask Linux for the use of AMX: where no kernel of torch has, its own end the process.

        Raises:
            ValueError: vLLM has no kernel for the layer.
        """
        torch.cpu._init_amx()
        super().create_weights(layer, *args, **kwargs)
        chosen = self.kernel
        if isinstance(chosen, CPUWNA16LinearKernel):
            self.kernel = FloatInputKernel(chosen.config, chosen.w_q_name, chosen.w_s_name, chosen.w_zp_name)
