"""The scheme table itself: valid, disjoint, total, and every name in it declared."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import quark_format
from quark_format.models.targets.tables import Schemes
from quark_format.resolver import Refusal, Resolution, Resolver
from quark_format.selection import PACK_METHOD, Column, Combination, KindIndex, Nearest
from quark_format.tables import table
from quark_format.targets import Target, UnknownTargetError, target, targets

EACH = [(name, kind) for name, one in targets().items() for kind in one.schemes.kinds]
SCHEMA = Path(quark_format.__file__).parents[1] / "schema"
WEIGHT = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}


@pytest.fixture(scope="module", params=list(targets()))
def declared(request: pytest.FixtureRequest) -> Target:
    return target(request.param)


@pytest.mark.parametrize("file", sorted(SCHEMA.glob("targets/*/*.json")), ids=lambda file: file.stem)
def test_files_are_valid(file: Path) -> None:
    """Every file is valid by the definition that its $schema names."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if file.name == "config.schema.json":
        jsonschema.Draft202012Validator.check_schema(content)
        return
    schema, _, inside = content["$schema"].partition("#")
    definitions = json.loads((file.parent / schema).read_text(encoding="utf-8"))
    named = inside.rpartition("/")[2] or Path(schema).name.removesuffix(".schema.json")
    assert named == file.stem
    root = {key: value for key, value in definitions.items() if not inside or key == "$defs"}
    wanted = {**root, "$ref": f"#{inside}"} if inside else root
    jsonschema.Draft202012Validator(wanted).validate(content)


def test_names_file_is_valid() -> None:
    schema = json.loads((SCHEMA / "names.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(table("names.json"))


def masks(columns: list[Column]) -> set[int]:
    """What the whole product of the columns' equivalence classes leaves of the combinations.

    Classes that leave the same combinations are merged after every column, which keeps the product exact.
    """
    found = {-1}
    for column in columns:
        found = {mask & one.accepted for mask in found for one in column.classes()}
    return found


def position_masks(index: KindIndex, position: str) -> set[int]:
    """The same for all specs of one position: every form, number of stages, and product of the fields."""
    most = len(index.stage_columns[position])
    forms = [index.forms[position]] if position in index.forms else []
    found = set()
    for one in index.stage_counts[position].classes():
        count = one.value if isinstance(one.value, int) and 0 <= one.value < most else most
        columns = [
            *forms,
            *(column for stage in index.stage_columns[position][:count] for _, column in stage),
        ]
        found |= {one.accepted & mask for mask in masks(columns)}
    return found


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_rows_are_disjoint_and_the_table_total(name: str, kind: str) -> None:
    """Over the whole product of equivalence classes at most one combination accepts, and each does so."""
    index = target(name).kinds[kind]
    total = {mask & one.accepted for mask in [-1] for one in index.pack_method.classes()}
    for position in index.positions:
        total = {mask & other for mask in total for other in position_masks(index, position)}
    assert all(mask & (mask - 1) == 0 for mask in total), "two combinations accept the same specs"
    reached = {mask.bit_length() - 1 for mask in total if mask}
    assert reached == set(range(len(index.combinations))), "a combination accepts nothing"
    assert 0 in total


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_classes_are_total(name: str, kind: str) -> None:
    """Every value of a field behaves as a class of it: no look-up fails, and none invents an answer."""
    index = target(name).kinds[kind]
    values: list[Any] = [
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        31,
        32,
        33,
        128,
        10**30,
        1.5,
        32.0,
        "",
        "fp4",
        [],
        {},
    ]
    columns = [
        column
        for position in index.positions
        for stage in index.stage_columns[position]
        for _, column in stage
    ]
    for column in [*columns, *index.stage_counts.values(), index.pack_method]:
        known = {one.accepted for one in column.classes()}
        for value in values:
            assert column.accepted(value) in known


def test_names_are_declared(declared: Target) -> None:
    """Rows, arguments, requirements and families name only what the tables declare."""
    schemes = declared.schemes
    fields = {field.id for field in schemes.fields}
    assert all(set(stage) <= fields for spec in schemes.specs.values() for stage in spec.stages)
    assert len({row.id for row in schemes.rows}) == len(schemes.rows)
    used = set()
    for row in schemes.rows:
        assert row.kind in schemes.kinds
        assert row.kernels is None or row.kernels in declared.kernels.families
        for position, names in {**schemes.kinds[row.kind].specs, **row.specs}.items():
            assert position in schemes.positions
            assert set(names) <= set(schemes.specs)
            used |= set(names)
        paths = [argument.field for argument in row.arguments.values() if argument.field]
        paths += [one.multiple_of for one in row.requires if isinstance(one.multiple_of, str)]
        assert all(path == PACK_METHOD or path.split(".")[2] in fields for path in paths)
    assert used == set(schemes.specs), "a spec that no row takes"
    families = {row.kernels for row in schemes.rows} - {None}
    assert families == set(declared.kernels.families), "a family that no row takes"


def block(**changes: Any) -> dict[str, Any]:
    layer = {"weight": WEIGHT, "input_tensors": WEIGHT, "output_tensors": None, "bias": None}
    return {
        "quant_method": "quark",
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "exclude": [],
        "layer_type_quant_config": {},
        "layer_quant_config": {},
        "global_quant_config": layer,
        **changes,
    }


def only(weight: Any, activation: Any = None) -> dict[str, Any]:
    layer = {"weight": weight, "input_tensors": activation, "output_tensors": None, "bias": None}
    return block(global_quant_config=layer)


def test_resolution_says_how_to_build_the_layer() -> None:
    int4 = {"dtype": "uint4", "qscheme": "per_group", "ch_axis": 1, "group_size": 128, "symmetric": False}
    found = Resolver(only(int4)).resolve("model.layers.0.mlp.down_proj", "linear")
    assert isinstance(found, Resolution)
    choice = found.choice
    assert choice.row == "linear.int4"
    assert choice.scheme == "vllm.model_executor.layers.quantization.quark.schemes.QuarkW4A16Int4"
    assert choice.arguments == {
        "weight_quant_key": "kInt4StaticAsym",
        "activation_quant_key": None,
        "pack_method": "reorder",
        "weight_config": int4,
    }
    assert [(one.dimension, one.multiple_of) for one in choice.requires] == [("in", 128)]
    assert choice.kernels["cuda"][1] == "MacheteLinearKernel"
    assert choice.capability == 70


def test_block_rows_reach_the_constructor() -> None:
    rows = {"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [32, 32], "symmetric": True}
    found = Resolver(only({**rows, "scale_type": "float8_e8m0fnu"})).resolve("x", "linear")
    assert isinstance(found, Resolution)
    assert found.choice.arguments["scale_block_rows"] == 32


def test_refusal_names_the_nearest_row_and_the_field() -> None:
    int3 = {"dtype": "int3", "qscheme": "per_group", "ch_axis": 1, "group_size": 128, "symmetric": True}
    found = Resolver(only(int3)).resolve("x", "linear")
    assert isinstance(found, Refusal)
    assert (found.cause, found.nearest) == ("spec", "linear.int4")
    assert [(one.field, one.found) for one in found.differences] == [("weight[0] dtype", "int3")]
    assert found.reason == (
        "vllm@0.32 has no scheme for a linear layer like this; the nearest row `linear.int4` differs: "
        "weight[0] dtype is `int3` (wanted: `int4`)"
    )


def test_refusal_of_weight_only_fp8_names_the_missing_input() -> None:
    found = Resolver(only(WEIGHT)).resolve("x", "linear")
    assert isinstance(found, Refusal)
    assert found.nearest == "linear.fp8"
    assert [one.field for one in found.differences] == ["number of input_tensors stages"]


def test_every_refusal_has_a_difference(declared: Target) -> None:
    """No spec is refused without a reason, whatever it is."""
    odd: list[Any] = [None, {}, [], [{}], [{}, {}, {}], "fp8", 3, {"dtype": ["fp4"]}, [None], [1, 2], WEIGHT]
    for kind, index in declared.kinds.items():
        for values in product(odd, repeat=2):
            found = index.find(dict(zip(("weight", "input"), values, strict=True)) | {"kv": values[0]}, "x")
            assert isinstance(found, Combination) or (isinstance(found, Nearest) and found.differences), kind


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"export": None}, "export"),
        ({"export": {"kv_cache_group": None}}, "export.kv_cache_group"),
        ({"exclude": None}, "exclude"),
        ({"layer_type_quant_config": None}, "layer_type_quant_config"),
        ({"quant_method": "fp8"}, "quant_method"),
        ({"export": {"kv_cache_group": ["*k_proj"]}}, "no key of layer_quant_config matches"),
    ],
)
def test_config_as_a_whole(changes: dict[str, Any], told: str) -> None:
    found = Resolver(block(**changes)).resolve("x", "linear")
    assert isinstance(found, Refusal)
    assert found.cause == "config"
    assert told in found.reason


def test_unknown_target() -> None:
    with pytest.raises(UnknownTargetError, match=r"vllm@0\.32"):
        target("sglang")
    newest = [name for name, one in targets().items() if one.header.name == "vllm"][-1]
    assert target("vllm").name == newest


def test_worked_example_is_data_only() -> None:
    """The rows of the contributors' page, added to the table, serve what was refused before."""
    page = (SCHEMA.parent / "docs" / "contributing-schemes.md").read_text(encoding="utf-8")
    added = json.loads(page.split("```json\n")[1].split("```")[0])
    tables = json.loads(json.dumps(table("targets/vllm-0.32/schemes.json")))
    weight = {"dtype": "int4", "qscheme": "per_group", "ch_axis": 1, "group_size": 64, "symmetric": True}
    activation = {**weight, "ch_axis": -1, "is_dynamic": True}
    subject = {"weight": {**weight, "is_dynamic": False}, "input": activation}
    before = KindIndex(Schemes.model_validate(tables), "linear")
    assert isinstance(before.find(subject, "reorder"), Nearest)
    tables["specs"] |= added["specs"]
    tables["rows"] += added["rows"]
    jsonschema.validate(
        tables, {**table("targets/target.schema.json"), "oneOf": [{"$ref": "#/$defs/schemes"}]}
    )
    found = KindIndex(Schemes.model_validate(tables), "linear").find(subject, "reorder")
    assert isinstance(found, Combination)
    assert found.row.id == added["rows"][0]["id"]


def test_every_form_of_a_config_resolves_alike() -> None:
    """A block, a whole config.json and the generated model of it give the same answer."""
    export = json.loads((SCHEMA.parent / "tests/data/exports/llama_fp8_kv.json").read_text(encoding="utf-8"))
    config = export["config"]
    name = "model.layers.0.self_attn.qkv_proj"
    forms = [config, config["quantization_config"], quark_format.load_config(config)]
    answers = [quark_format.resolve(form, name, kind="linear", target="vllm@0.32") for form in forms]
    assert {answer.choice.row for answer in answers if isinstance(answer, Resolution)} == {"linear.fp8"}
    assert len(answers) == len(forms)
