"""The load server on a CPU that has no AMX, whatever the machine: the platform `cpu`, not `cpu:amx`."""

from __future__ import annotations

import torch

torch.cpu._is_amx_tile_supported = lambda: False

from plugin.load_server import main  # noqa: E402 - vLLM asks as it is imported

if __name__ == "__main__":
    main()
