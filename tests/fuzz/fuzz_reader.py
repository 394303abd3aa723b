"""Fuzz one reader with coverage as the guide.

python tests/fuzz/fuzz_reader.py TARGET [options of libFuzzer] [NEW_INPUTS [SEEDS...]]
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["quark_format"]):
    import fuzz_targets


def main() -> None:
    """Run the fuzzer on the target that the first argument names."""
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], *options], fuzz_targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
