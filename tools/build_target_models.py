"""Generate the typed models of the target tables from their schemas.

`--check` writes nothing and exits 1 when a file on disk differs from what its schema gives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ROOT / "schema" / "targets"
MODELS = ROOT / "quark_format" / "models" / "targets"

HEADER = """\
# ruff: noqa
\"\"\"Generated from schema/{source} by tools/build_target_models.py. Do not edit.\"\"\"
"""

OPTIONS = [
    "--input-file-type=jsonschema",
    "--output-model-type=pydantic_v2.BaseModel",
    "--target-python-version=3.11",
    "--formatters=ruff-format",
    "--use-standard-collections",
    "--use-union-operator",
    "--use-annotated",
    "--use-schema-description",
    "--use-field-description",
    "--use-title-as-name",
    "--enum-field-as-literal=all",
    "--collapse-root-models",
    "--disable-timestamp",
]


def sources() -> dict[Path, Path]:
    """Each generated module and the schema it comes from."""
    found = {MODELS / "tables.py": TARGETS / "target.schema.json"}
    for schema in sorted(TARGETS.glob("*/config.schema.json")):
        found[MODELS / f"{schema.parent.name.translate(str.maketrans('-.', '__'))}.py"] = schema
    return found


def generate(schema: Path, module: Path) -> str:
    """The source text of `module`, the models of `schema`.

    Raises:
        subprocess.CalledProcessError: the generator refuses the schema.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "model.py"
        command = [sys.executable, "-m", "datamodel_code_generator", "--input", str(schema)]
        header = HEADER.format(source=schema.relative_to(ROOT / "schema").as_posix())
        subprocess.run(
            [*command, "--output", str(output), "--custom-file-header", header, *OPTIONS], check=True
        )
        style = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(module), "-"]
        text = output.read_bytes()
        return subprocess.run(style, input=text, check=True, capture_output=True).stdout.decode()


def main() -> int:
    """Write the models, or with `--check` compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    stale = 0
    for module, schema in sources().items():
        text = generate(schema, module)
        if not module.exists() or module.read_text(encoding="utf-8") != text:
            stale += 1
            sys.stdout.write(f"{module.relative_to(ROOT)} {'differs' if check else 'written'}\n")
            if not check:
                module.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
