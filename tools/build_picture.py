"""Draw what `quark-validate` prints for a faulty checkpoint: the picture of the README and the start page.

The checkpoint is the example with `lm_head` taken out of `exclude`. `--check` tells whether the picture has
the words that the command prints now.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "assets" / "report.svg"
EXAMPLE = ROOT / "examples" / "llama-fp8-kv"
ARGUMENTS = (EXAMPLE.name, "--target", "vllm@0.32")
COMMAND = f"quark-validate {' '.join(ARGUMENTS)}"
WIDTH = 90
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich has a browser fetch a font from another host."""


def printed() -> str:
    """What the command prints on a terminal, with its colours."""
    with TemporaryDirectory() as name:
        folder = Path(name) / EXAMPLE.name
        shutil.copytree(EXAMPLE, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["quantization_config"]["exclude"].remove("lm_head")
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        script = "from quark_format.validators.cli import main; main()"
        command = (sys.executable, "-c", script, *ARGUMENTS)
        return subprocess.run(
            command, cwd=name, env=environment, stdout=subprocess.PIPE, text=True, check=False
        ).stdout


def drawn(output: str) -> str:
    """The picture of a terminal that shows the command and its output."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {COMMAND}\n{output}"))
    svg = _FONTS.sub("", console.export_svg(title="", unique_id="report"))
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


def words(svg: str) -> str:
    """The words in a picture."""
    lines = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    return " ".join(unescape("".join(lines)).replace("\xa0", " ").split())


def main() -> int:
    """Write the picture or check it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the words differ")
    picture = drawn(printed())
    if not parser.parse_args().check:
        PICTURE.write_text(picture, encoding="utf-8")
        return 0
    if PICTURE.is_file() and words(PICTURE.read_text(encoding="utf-8")) == words(picture):
        return 0
    print(f"{PICTURE.relative_to(ROOT)} is out of date; run python tools/build_picture.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
