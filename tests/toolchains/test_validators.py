"""Validators of other makers, over the files as they are: same verdicts on every block."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import blocks
import pytest
from jsonschema import Draft202012Validator

from quark_format.config_errors import schema_errors
from quark_format.tables import table
from toolchains import corpus

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All documents in one file."""
    return corpus.write_job(tmp_path_factory.mktemp("job") / "job.json")


def answer(*command: str | Path) -> Any:
    """What a command writes, as JSON."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_corpus_has_both_verdicts_of_every_schema() -> None:
    told: dict[str, set[bool]] = {}
    for (file, _), valid in zip(corpus.documents(), corpus.expected(), strict=True):
        told.setdefault(file, set()).add(valid)
    assert set(map(frozenset, told.values())) == {frozenset({True, False})}


@pytest.mark.parametrize("level", ["config", "strict"])
def test_the_validator_of_this_project_on_faults(level: str) -> None:
    """The schemas tell at least a hundred of the faults; a pattern that matches nothing, say, they do not."""
    files = {entry["version"]: entry[level] for entry in table("catalog.json")["versions"]}
    told = [not any(schema_errors(one, v, strict=level == "strict")) for v, one in corpus.faulty()]
    assert told == [Draft202012Validator(table(files[v])).is_valid(one) for v, one in corpus.faulty()]
    assert told.count(True) > 0
    assert told.count(False) > (100 if level == "strict" else 0)


def test_ajv_in_strict_mode(node_modules: Path, job: Path) -> None:
    assert answer("node", HERE / "ajv_verdicts.mjs", node_modules, job) == corpus.expected()


def test_ajv_compiles_every_schema_of_the_folder(node_modules: Path, tmp_path: Path) -> None:
    schemas = sorted(map(str, corpus.SCHEMA.rglob("*schema.json")))
    (tmp_path / "job.json").write_text(json.dumps({"schemas": schemas, "documents": []}), encoding="utf-8")
    assert answer("node", HERE / "ajv_verdicts.mjs", node_modules, tmp_path / "job.json") == []


def test_jsonschema_rs(clean_bin: Path, job: Path) -> None:
    assert answer(clean_bin / "python", HERE / "rust_verdicts.py", job) == corpus.expected()


def refused(clean_bin: Path, schema: Path, files: list[Path]) -> set[Path]:
    """The files in which check-jsonschema finds an error; it gives one report for all."""
    command = (clean_bin / "check-jsonschema", "--schemafile", schema, "--output-format", "json")
    report = answer(*command, *files)
    assert report["parse_errors"] == []
    return {Path(error["filename"]) for error in report["errors"]}


def test_check_jsonschema(clean_bin: Path, tmp_path: Path) -> None:
    """One process for all: a schema that refers to each of ours by its place, for files that say which."""
    names = sorted({file for file, _ in corpus.documents()})
    parts = {name: {"$ref": (corpus.SCHEMA / name).as_uri()} for name in names}
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"properties": parts}), encoding="utf-8")
    wanted = set()
    files = []
    for number, ((file, one), valid) in enumerate(zip(corpus.documents(), corpus.expected(), strict=True)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({file: one}), encoding="utf-8")
        files.append(path)
        wanted |= set() if valid else {path}
    assert refused(clean_bin, schema, files) == wanted


def test_check_jsonschema_as_the_page_says(clean_bin: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    right.write_text(json.dumps(blocks.exported("llama_mxfp4")), encoding="utf-8")
    wrong.write_text(json.dumps({**blocks.exported("llama_mxfp4"), "exclude": 1}), encoding="utf-8")
    schema = corpus.SCHEMA / "v0.13" / "config.schema.json"
    assert refused(clean_bin, schema, [right, wrong]) == {wrong}
