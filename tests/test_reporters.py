"""Reports and the forms they are written in."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from quark_format.tables import table
from quark_format.validators.findings import Finding, Severity, rules
from quark_format.validators.report import Report, TargetVerdict, document, exit_code
from quark_format.validators.reporters import Format, reporter

DATA = Path(__file__).parent / "data"
HOSTILE = "model\x1b[31m.x\n::error::\u202e[bold red]\x9b]0;title\x07%0A,\ud800"


def found(code: str = "QF301", severity: Severity = "error", **places: str) -> Finding:
    return Finding(
        code=code,
        name=rules()[code].name,
        severity=severity,
        message=f"`{places.get('tensor', 'x')}` is missing. Loaders stop.",
        fix="Restore the tensor.",
        **places,  # type: ignore[arg-type]
    )


FAILS = TargetVerdict("vllm@0.32", loads=False, reasons=("no kernel",), outcome="fails", platform="cuda:90")


def report(*findings: Finding, path: str = "models/llama", readable: bool = True) -> Report:
    return Report(
        path=path,
        readable=readable,
        findings=findings,
        format_version="0.13",
        mode="quark",
        writer="eager",
        targets=(FAILS,),
        tensors=33,
        shards=1,
        tensor_bytes=429_056,
    )


SCALE = found(file="model.safetensors", tensor="model.layers.0.mlp.up_proj.weight_scale")
PATTERN = found("QF220", "info", file="config.json", pointer="/quantization_config/exclude/3")
ORDER = found("QF225", "warning", file="config.json", pointer="/quantization_config/layer_quant_config")
NASTY = found(file=HOSTILE, tensor=HOSTILE, module=HOSTILE, pointer=HOSTILE)


def written(form: Format, *reports: Report, show_all: bool = False) -> str:
    stream = io.StringIO()
    reporter(form, show_all=show_all)(reports, stream)
    return stream.getvalue()


def test_exit_code_is_the_worst_of_all_checkpoints() -> None:
    clean, faulty, lost = report(PATTERN, ORDER), report(SCALE), report(readable=False)
    assert exit_code([clean]) == 0
    assert exit_code([clean, faulty]) == 1
    assert exit_code([faulty, lost, clean]) == 2
    assert (clean.ok, faulty.ok, lost.ok) == (True, False, False)


def test_document_has_the_declared_keys() -> None:
    made = document([report(SCALE, PATTERN)])
    assert set(made) == {"schema_version", "tool_version", "checkpoints"}
    (checkpoint,) = made["checkpoints"]
    assert list(checkpoint) == ["path", "format_version", "writer", "ok", "summary", "targets", "findings"]
    assert checkpoint["summary"] == {
        "readable": True,
        "mode": "quark",
        "errors": 1,
        "warnings": 0,
        "infos": 1,
        "tensors": 33,
        "shards": 1,
        "tensor_bytes": 429_056,
    }
    verdict = {"loads": False, "outcome": "fails", "reasons": ["no kernel"]}
    assert checkpoint["targets"] == [{"name": "vllm@0.32", "platform": "cuda:90", **verdict}]
    assert checkpoint["findings"][0] == {
        "code": "QF301",
        "name": "tensor-missing",
        "severity": "error",
        "message": SCALE.message,
        "fix": SCALE.fix,
        "file": "model.safetensors",
        "tensor": "model.layers.0.mlp.up_proj.weight_scale",
        "module": None,
        "pointer": None,
        "count": 1,
    }


def test_json_is_valid_by_the_report_schema() -> None:
    schema = table("report.schema.json")
    Draft202012Validator.check_schema(schema)
    bare = Report(path="nowhere", readable=False, findings=(found("QF101"),))
    made = json.loads(written(Format.JSON, report(SCALE, PATTERN, ORDER, NASTY), report(), bare))
    Draft202012Validator(schema).validate(made)
    assert made["checkpoints"][0]["findings"][3]["tensor"] == HOSTILE


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), "2.0"),
        (("checkpoints", 0, "ok"), "yes"),
        (("checkpoints", 0, "format_version"), 0.13),
        (("checkpoints", 0, "summary", "errors"), -1),
        (("checkpoints", 0, "findings", 0, "code"), "E301"),
        (("checkpoints", 0, "findings", 0, "severity"), "fatal"),
        (("checkpoints", 0, "findings", 0, "count"), 0),
        (("checkpoints", 0, "targets", 0, "more"), 1),
    ],
)
def test_report_schema_refuses(path: tuple[str | int, ...], value: object) -> None:
    made = json.loads(written(Format.JSON, report(SCALE)))
    place = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (error,) = Draft202012Validator(table("report.schema.json")).iter_errors(made)
    assert list(path[: len(error.absolute_path)]) == list(error.absolute_path)


def test_report_schema_describes_every_property() -> None:
    schema = table("report.schema.json")
    for holder in (schema, *schema["$defs"].values()):
        for name, declared in holder.get("properties", {}).items():
            assert "description" in declared or "$ref" in declared, name


def test_text_groups_by_severity_and_counts() -> None:
    text = written(Format.TEXT, report(PATTERN, ORDER, SCALE), report(path="models/good"))
    assert text.index("error QF301 tensor-missing") < text.index("warning QF225") < text.index("info QF220")
    assert "model.safetensors · model.layers.0.mlp.up_proj.weight_scale" in text
    assert "Fix: Restore the tensor." in text
    assert "FAILED: 1 error, 1 warning, 1 info" in text
    assert "Quark format 0.13, quark mode, eager writer, 33 tensors in 1 file" in text
    assert text.rstrip().endswith("OK: nothing found")
    assert "NOT READ: 1 error" in written(Format.TEXT, report(found("QF101"), readable=False))


def test_text_shortens_repeated_findings_unless_all_are_wanted() -> None:
    many = report(*(found(tensor=f"model.layers.{number}.weight_scale") for number in range(1500)))
    short = written(Format.TEXT, many)
    assert short.count("error QF301") == 3
    assert "… and 1,497 more QF301 tensor-missing" in short
    assert "FAILED: 1,500 errors" in short
    assert written(Format.TEXT, many, show_all=True).count("error QF301") == 1500


def test_text_says_once_why_a_target_fails() -> None:
    """By the findings that stand above it; where none does, in words."""
    told = replace(report(SCALE, PATTERN), targets=(replace(FAILS, reasons=(SCALE.message,)),))
    assert "vllm@0.32 on cuda:90 does not load it: QF301 tensor-missing\n" in written(Format.TEXT, told)
    assert "vllm@0.32 on cuda:90 does not load it: no kernel\n" in written(Format.TEXT, report(SCALE))


def test_text_keeps_one_finding_on_one_line_when_piped() -> None:
    name = "model." + "very_long_module." * 40 + "weight_scale"
    assert f"`{name}` is missing. Loaders stop.\n" in written(Format.TEXT, report(found(tensor=name)))


@pytest.mark.parametrize("form", [Format.TEXT, Format.GITHUB, Format.JUNIT, Format.SARIF, Format.JSON])
def test_names_are_never_printed_raw(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = written(form, report(NASTY, path=HOSTILE), show_all=True)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
    assert not re.search(r"^\s*::error::", text, flags=re.MULTILINE)
    text.encode("utf-8")


def test_endless_names_are_cut() -> None:
    endless = found(tensor="x" * 10_000_000)
    for form in (Format.TEXT, Format.GITHUB, Format.JUNIT, Format.SARIF):
        assert len(written(form, report(endless))) < 100_000


def test_markup_in_names_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    name = "[bold]model[/bold].:warning:.weight"
    assert f"`{name}` is missing" in written(Format.TEXT, report(found(tensor=name)))


def test_colours_only_where_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in written(Format.TEXT, report(SCALE))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in written(Format.TEXT, report(SCALE))


def test_sarif_is_valid_by_its_own_schema() -> None:
    schema = json.loads((DATA / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    validator = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)
    log = json.loads(written(Format.SARIF, report(SCALE, PATTERN, ORDER, NASTY), report(path="/else/where")))
    assert [error.message for error in validator.iter_errors(log)] == []
    assert [error.message for error in validator.iter_errors(json.loads(written(Format.SARIF)))] == []
    del log["runs"][0]["tool"]
    assert [error.message for error in validator.iter_errors(log)] == ["'tool' is a required property"]


def test_sarif_holds_rules_levels_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outside = report(SCALE, path="/else/my models/llama")
    inside = report(PATTERN, path=str(tmp_path / "my models" / "config.json"))
    (run,) = json.loads(written(Format.SARIF, report(SCALE, ORDER, PATTERN), outside, inside))["runs"]
    declared = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in declared] == list(rules())
    assert all("{" not in rule["fullDescription"]["text"].replace("{…}", "") for rule in declared)
    results = run["results"]
    assert [result["level"] for result in results] == ["error", "warning", "note", "error", "note"]
    assert all(declared[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    assert uris == [
        "models/llama/model.safetensors",
        "models/llama/config.json",
        "models/llama/config.json",
        "file:///else/my%20models/llama/model.safetensors",
        "my%20models/config.json",
    ]
    names = results[0]["locations"][0]["logicalLocations"]
    assert names == [{"fullyQualifiedName": SCALE.tensor, "kind": "tensor"}]


def test_sarif_fingerprints_tell_findings_apart_and_last() -> None:
    def prints(*findings: Finding) -> list[str]:
        (run,) = json.loads(written(Format.SARIF, report(*findings)))["runs"]
        return [result["partialFingerprints"]["quarkFormat/v1"] for result in run["results"]]

    assert len(set(prints(SCALE, PATTERN, ORDER))) == 3
    assert prints(SCALE) == prints(ORDER, SCALE)[1:]


def test_github_commands_are_escaped() -> None:
    nasty = found(file="a,b:c%.json", tensor="100%\r\n::stop-commands::x")
    lines = written(Format.GITHUB, report(SCALE, ORDER, PATTERN, nasty)).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::notice", "::error"]
    assert lines[0] == (
        "::error file=models/llama/model.safetensors,title=QF301 tensor-missing::"
        "model.safetensors · model.layers.0.mlp.up_proj.weight_scale%0A"
        "`model.layers.0.mlp.up_proj.weight_scale` is missing. Loaders stop.%0AFix: Restore the tensor."
    )
    assert lines[3].startswith(
        "::error file=models/llama/a%2Cb%3Ac%25.json,title=QF301 tensor-missing::a,b:c%25.json"
    )
    assert r"100%25\r\n::stop-commands::x" in lines[3]


def test_junit_counts_errors_as_failures() -> None:
    lost = report(found("QF101"), path="lost", readable=False)
    root = ET.fromstring(written(Format.JUNIT, report(SCALE, ORDER), report(path="good"), lost))  # noqa: S314
    suites = {suite.attrib["name"]: suite for suite in root.iter("testsuite")}
    counts = {
        name: (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"])
        for name, suite in suites.items()
    }
    assert counts == {"models/llama": ("2", "1", "0"), "good": ("1", "0", "0"), "lost": ("1", "0", "1")}
    failure = suites["models/llama"].find("testcase/failure")
    assert failure is not None
    assert failure.attrib["type"] == "tensor-missing"
    assert failure.text == f"{SCALE.message}\nFix: {SCALE.fix}"
    assert suites["models/llama"].findtext("testcase/system-out") == f"{ORDER.message}\nFix: {ORDER.fix}"
