"""The hook of mkdocs that adds the generated pages, and runs the commands that pages show.

A block of code whose language is `console` and whose class is `run` holds commands, one a line. They run in
a scratch folder with the examples in it, one folder a page, and the block shows what they print.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

TOOLS = str(Path(__file__).parent)
if TOOLS not in sys.path:
    sys.path.append(TOOLS)

from doc_pages.markdown import block  # noqa: E402
from doc_pages.pages import generated  # noqa: E402
from doc_pages.terminal import shell  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

EXAMPLES = Path(__file__).parents[1] / "examples"
_RUN = re.compile(r"^``` console run\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, content in generated().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Run the commands of a page, and show what they print."""
    if not _RUN.search(markdown):
        return markdown
    with TemporaryDirectory() as name:
        folder = Path(name)
        for example in (path for path in EXAMPLES.iterdir() if path.is_dir()):
            shutil.copytree(example, folder / example.name, copy_function=shutil.copyfile)
        return _RUN.sub(lambda found: _session(found["lines"], folder), markdown)


def _session(lines: str, folder: Path) -> str:
    shown = (f"$ {line}\n{shell(line, folder).rstrip()}".rstrip() for line in lines.splitlines())
    return block("\n\n".join(shown), "console")
