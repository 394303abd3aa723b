"""The commands, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from quark_format import cli as schema_cli
from quark_format.tables import table
from quark_format.validators import cli
from quark_format.validators.findings import finding, rules
from quark_format.validators.report import Report
from quark_format.validators.selection import Selection, UnknownRule, prefix

ROOT = Path(__file__).parent.parent
EXAMPLE = "examples/llama-fp8-kv"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `quark-validate` in this process from the repository's root: exit code, stdout, stderr."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["quark-validate", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        printed = capsys.readouterr()
        code = left.value.code
        assert isinstance(code, int)
        return code, printed.out, printed.err

    return command


@pytest.fixture
def judgement(monkeypatch: pytest.MonkeyPatch) -> dict[str, Report | BaseException]:
    """Replace the checks by a table: path -> report, or the exception that a bug would raise."""
    answers: dict[str, Report | BaseException] = {}

    def validate(path: str, **_: object) -> Report:
        answer = answers[path]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr("quark_format.validators.validate.validate", validate)
    return answers


def faulty(path: str) -> Report:
    missing = finding("QF113", file="extra.safetensors")
    wrong = finding("QF107", file="model.safetensors", tensor="model.norm.weight", actual="F12")
    return Report(path, readable=True, findings=(missing, wrong))


def test_healthy_example(run: Command) -> None:
    code, out, err = run(EXAMPLE)
    assert (code, err) == (0, "")
    assert out.startswith(f"{EXAMPLE}\n")
    assert "Quark format 0.13" in out
    assert "OK: " in out


def test_config_alone_is_a_checkpoint(run: Command) -> None:
    code, out, _ = run(f"{EXAMPLE}/config.json", "--format", "json")
    assert code == 0
    assert json.loads(out)["checkpoints"][0]["format_version"] == "0.13"


@pytest.mark.parametrize("path", ["no/such/folder", "README.md", "amd/Llama-3.1-8B-Instruct-FP8-KV", ""])
def test_unreadable_path(run: Command, path: str) -> None:
    code, out, _ = run(path)
    assert code == 2
    assert "QF101 path-unreadable" in out
    assert "Traceback" not in out


def test_exit_code_and_order_over_several_checkpoints(
    run: Command, judgement: dict[str, Report | BaseException]
) -> None:
    judgement |= {"b": Report("b", readable=True), "a": faulty("a")}
    code, out, _ = run("b", "a", "--format", "json")
    assert code == 1
    assert [entry["path"] for entry in json.loads(out)["checkpoints"]] == ["b", "a"]


def test_a_bug_is_a_sentence_and_the_others_are_judged(
    run: Command, judgement: dict[str, Report | BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement |= {"bad": ZeroDivisionError("\x1b[31mboom"), "good": Report("good", readable=True)}
    code, out, err = run("bad", "good")
    assert code == 2
    assert out.endswith("OK: nothing found\n")
    assert err.startswith(r"quark-validate: bad: the check itself failed (ZeroDivisionError: \x1b[31mboom).")
    assert "please report it" in err
    assert "Traceback" not in err
    monkeypatch.setenv("QUARK_FORMAT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_a_bug_outside_the_checks_is_a_sentence_too(
    run: Command, judgement: dict[str, Report | BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such stream")

    monkeypatch.setattr("quark_format.validators.reporters.text.render", broken)
    judgement["good"] = Report("good", readable=True)
    code, _, err = run("good")
    assert code == 2
    assert "the command failed (RuntimeError: no such stream)" in err


def test_interrupt_is_not_taken_for_errors_found(
    run: Command, judgement: dict[str, Report | BaseException]
) -> None:
    judgement["x"] = KeyboardInterrupt()
    assert run("x") == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "codes", "exit_code"),
    [
        ([], ["QF113", "QF107"], 1),
        (["--select", "QF107"], ["QF107"], 1),
        (["--select", "qf1", "--ignore", "QF107"], ["QF113"], 0),
        (["--ignore", "dtype-unknown,QF113"], [], 0),
        (["--ignore", "QF1", "--select", "Shard-Unlisted"], ["QF113"], 0),
        (["--ignore", "QF107", "--ignore", "QF2"], ["QF113"], 0),
        (["--select", "QF3"], [], 0),
    ],
)
def test_select_and_ignore(
    run: Command,
    judgement: dict[str, Report | BaseException],
    arguments: list[str],
    codes: list[str],
    exit_code: int,
) -> None:
    judgement["x"] = faulty("x")
    code, out, _ = run("x", "--format", "json", *arguments)
    assert code == exit_code
    (entry,) = json.loads(out)["checkpoints"]
    assert [found["code"] for found in entry["findings"]] == codes


def test_ignoring_does_not_make_an_unreadable_path_readable(run: Command) -> None:
    assert run("no/such/folder", "--ignore", "QF1")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument 'CHECKPOINT'"),
        (["x", "--format", "yaml"], "'yaml' is not one of"),
        (["x", "--tensor-parallel", "0"], "Invalid value for '--tensor-parallel'"),
        (["x", "--select", "tensor-mising"], "'tensor-mising' is no rule. Did you mean tensor-missing?"),
        (["x", "--ignore", "QF8"], "'QF8' is no rule."),
        (["--explain", "tensor-shap"], "Did you mean tensor-shape?"),
        (["--explain", "quite something else"], "`quark-validate --explain all` lists the rules."),
        (["x", "--frobnicate"], "No such option: --frobnicate"),
    ],
)
def test_wrong_usage(run: Command, arguments: list[str], sentence: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_tensor_parallel_reaches_the_checks(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def validate(path: str, **asked: Any) -> Report:
        assert (asked["values"], asked["target"], asked["platform"]) == ("none", None, None)
        sizes.append(asked["tensor_parallel_size"])
        return Report(path, readable=True)

    monkeypatch.setattr("quark_format.validators.validate.validate", validate)
    assert run("x", "--tensor-parallel", "8")[0] == 0
    assert run("x")[0] == 0
    assert sizes == [8, 1]


@pytest.mark.parametrize("name", ["QF301", "qf301", "tensor-missing"])
def test_explain(run: Command, name: str) -> None:
    code, out, _ = run("--explain", name)
    assert code == 0
    assert out.startswith("QF301 tensor-missing  error\n")
    headings = ["What it says", "Why it matters", "How to fix it", "Sources"]
    assert [line for line in out.splitlines() if line in headings] == headings
    assert "`<tensor>` is missing" in out


def test_every_rule_has_a_page(run: Command) -> None:
    _, listed, _ = run("--explain", "all")
    assert [line.split()[0] for line in listed.splitlines()] == list(rules())
    for code in rules():
        assert run("--explain", code)[0] == 0


def test_version_and_help(run: Command) -> None:
    assert run("--version") == (0, f"quark-validate {version('quark-format')}\n", "")
    code, out, _ = run("-h")
    assert code == 0
    for option in (
        "--tensor-parallel",
        "--format",
        "--select",
        "--ignore",
        "--all",
        "--explain",
        "--version",
    ):
        assert option in out
    assert "--install-completion" in out


def test_completion_script(monkeypatch: pytest.MonkeyPatch, run: Command) -> None:
    monkeypatch.setenv("_QUARK_VALIDATE_COMPLETE", "source_bash")
    code, out, _ = run()
    assert code == 0
    assert "_quark_validate_completion" in out


def test_prefixes_and_names_are_known() -> None:
    assert [prefix(text) for text in ("QF", "qf3", "QF301", "tensor-missing")] == [
        "QF",
        "QF3",
        "QF301",
        "QF301",
    ]
    with pytest.raises(UnknownRule, match="is no rule"):
        prefix("Q")
    chosen = Selection.parse(["QF3", "QF401"], ["QF30", "QF4", "QF301"])
    kept = [code for code in ("QF301", "QF303", "QF311", "QF401", "QF402", "QF501") if chosen.keeps(code)]
    assert kept == ["QF311", "QF401"]


def test_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quark_format", EXAMPLE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "OK: " in done.stdout


def test_help_is_fast_and_light() -> None:
    heavy = {
        "jsonschema",
        "junitparser",
        "numpy",
        "pydantic",
        "rich.console",
        "torch",
        "transformers",
        "vllm",
    }
    script = (
        "import sys\n"
        "from quark_format.validators.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert heavy & set(done.stderr.split()) == set()

    def seconds(*arguments: str) -> float:
        took = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
            took.append(time.perf_counter() - start)
        return min(took)

    assert seconds("-m", "quark_format", "--help") < 3 * seconds("-c", "import pydantic")


def test_schema_files_are_listed_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["quark-format", *arguments])
        with pytest.raises(SystemExit) as left:
            schema_cli.main()
        assert left.value.code == 0
        return capsys.readouterr().out

    listed = command("schema", "list").split()
    assert {"rules.json", "v0.13/config.schema.json", "README.md", "LICENSE"} <= set(listed)
    assert listed == sorted(
        path.relative_to(ROOT / "schema").as_posix()
        for path in (ROOT / "schema").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    )
    target = tmp_path / "new" / "schema"
    assert command("schema", "export", str(target)) == f"{len(listed)} files in {target}\n"
    assert (
        sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()) == listed
    )
    assert json.loads((target / "rules.json").read_text(encoding="utf-8")) == table("rules.json")
    assert (target / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
