"""The consumers that are asked: what loads checkpoints for a target, and on which platform."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.cases import RUNNING
from oracle.loader import Loader

_VERSIONS = """\
import sys
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]))
"""


@dataclass(frozen=True)
class Consumer:
    """What loads checkpoints for a target: a module, its environment, and options of each request.

    `running` are exports that it runs, in which faults are planted.
    """

    platform: str
    module: str
    distributions: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    running: tuple[str, ...] = RUNNING

    def start(self, log: Path, python: str = sys.executable) -> Loader:
        """Start its process with the interpreter `python`; what it writes goes to `log`."""
        return Loader(python, self.module, self.environment, self.options, log)

    def versions(self, python: str) -> str:
        """The distributions that the interpreter `python` loads checkpoints with."""
        told = subprocess.run(
            [python, "-c", _VERSIONS, *self.distributions], capture_output=True, text=True, check=True
        )
        return told.stdout.strip()


OFFLINE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
VLLM = {
    **OFFLINE,
    "QUARK_FORMAT_VLLM": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
FEW_BLOCKS = {"arguments": {"num_gpu_blocks_override": 16}}
CONSUMERS = {
    "vllm@0.32": Consumer(
        "cpu",
        "oracle.without_amx",
        ("vllm-cpu", "torch", "transformers"),
        VLLM,
        {"logprobs": True, **FEW_BLOCKS},
    ),
    "vllm@0.22": Consumer(
        "cpu",
        "oracle.load_in_vllm",
        ("vllm-cpu", "torch", "transformers", "amd-quark"),
        VLLM,
        FEW_BLOCKS,
        running=(
            *("llama_int8_pt", "llama_int8_pc_dyn", "opt_int8", "llama_int8_pc_static", "llama_mxfp6_e3m2"),
            *("llama_int8_kv", "llama_int8_pt_asym_a", "llama_int8_pc_dyn_asym", "q0.8.2_llama_int8pc"),
        ),
    ),
    "transformers@5.19": Consumer(
        "cpu", "oracle.load_in_transformers", ("transformers", "amd-quark", "torch"), OFFLINE
    ),
}
