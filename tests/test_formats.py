"""Which tool, mode and version wrote a config, where its block lies, and how it is read."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import blocks
import exports
import pytest
from jsonschema import Draft202012Validator

from quark_format.formats import ConfigError, Format, SchemaError, detect, load_config, locate, schema_errors
from quark_format.tables import table

VERSIONS = [item["version"] for item in table("catalog.json")["versions"]]


def test_the_catalog_is_valid_by_its_schema() -> None:
    schema = table("catalog.schema.json")
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(table("catalog.json"))] == []


def test_the_catalog_names_what_exists() -> None:
    catalog = table("catalog.json")
    in_order = sorted(VERSIONS, key=lambda version: [int(part) for part in version.split(".")])
    assert in_order == VERSIONS
    for entry in catalog["versions"]:
        module = import_module(f"quark_format.models.{entry['model']}")
        definitions = table(entry["config"])["$defs"]
        for mode in catalog["modes"]:
            assert mode["definition"] in definitions
            assert hasattr(module, mode["definition"])
            assert (
                definitions[mode["definition"]]["properties"]["quant_method"]["const"] == mode["quant_method"]
            )
    names = [item["name"] for item in catalog["sisters"]]
    assert len(names) == len(set(names))
    for probe in catalog["probes"]:
        assert probe["place"] in catalog["places"]
        assert probe.get("at_least", probe.get("at_most")) in VERSIONS


# The export's own version is the newest of the candidates, but 0.6.0 writes the same keys as 0.7, and the AWQ
# mode of 0.12 the same as that of 0.8 to 0.13.
@pytest.mark.parametrize("name", exports.names())
def test_a_real_export_is_recognised(name: str) -> None:
    block, version = blocks.exported(name), blocks.exporter_version(name)
    verdict = detect(block)
    assert version in verdict.candidates
    assert verdict.version == verdict.candidates[-1]
    if block["quant_method"] == "quark" and version != "0.6":
        assert verdict.candidates == (version,)
    assert (verdict.mode, verdict.sister) == (block["quant_method"], None)
    assert verdict.declared == (block.get("version") if block["quant_method"] == "quark" else None)
    assert verdict.known
    assert not verdict.contradicted
    assert verdict.writer == ("file2file" if name.startswith("f2f_") else "eager")


ALL = tuple(VERSIONS)
FROM_9, FROM_10, FROM_11 = ALL[3:], ALL[4:], ALL[5:]

# name: (mode, candidates, what is wrong)
WILD: dict[str, tuple[str | None, tuple[str, ...], list[tuple[str, str, tuple[str, ...]]]]] = {
    "atom_fp4_layer_pattern_test": (
        "quark",
        ALL,
        [
            ("/global_quant_config/input_tensors", "required", ("dtype",)),
            ("/layer_quant_config/*.mlp.*/weight/dtype", "enum", ()),
            ("/layer_quant_config/*.mlp.*/input_tensors", "required", ("dtype",)),
        ],
    ),
    "awq_custom_mode_pack_method": ("awq", ALL, []),
    "deepseek_v3_2_mxfp4_quark_0_11rc1": ("quark", ("0.11",), []),
    "int4_weightonly_asym_uint4_minimal_vllm_test": ("quark", ALL, []),
    "kimi_k2_5_mxfp4_exclusions_dropped": ("quark", ("0.10",), []),
    "kimi_k2_5_w4a8_blog_minimal": ("quark", FROM_9, []),
    "kimi_k2_5_w4a8_int4_fp8_progressive_quark_0_11": ("quark", ("0.11",), []),
    "kimi_k2_5_w8a8_fp8_per_channel_quark_0_11": ("quark", ("0.11",), []),
    "kimi_k2_mxfp4_exclude_unanchored_gate": ("quark", ALL, [("", "required", ("global_quant_config",))]),
    "kv_cache_group_layer_quant_minimal": ("quark", ALL, [("", "required", ("quant_method",))]),
    "minimal_user_bogus_quark_block": ("quark", ALL, [("", "required", ("global_quant_config",))]),
    "moe_layerwise_fp4_kimi_linear_synthetic": (
        "quark",
        ALL,
        [("/layer_quant_config/*block_sparse_moe.experts/input_tensors", "required", ("dtype",))],
    ),
    "mxfp4_quark_0_12_fse_base": ("quark", ("0.12",), []),
    "older_fp8_custom_mode_static_kv": ("fp8", ALL[:4], []),
    "quark_order_pack_method": ("quark", ALL, []),
    "sister_fp8_static_quark_custom_mode_kv_docs": ("fp8", ALL, [("", "required", ("quant_method",))]),
    "user_int4_int8_pergroup_minimal": (
        "quark",
        FROM_10,
        [("", "required", ("quant_method",)), ("/global_quant_config/weight", "required", ("dtype",))],
    ),
    "user_int4_pergroup_bf16_scale_asym_partial": (
        "quark",
        ALL[2:],
        [("", "required", ("quant_method", "global_quant_config")), ("/export/weight_format", "enum", ())],
    ),
    "user_mxfp4_algo_config_empty_list_partial": (
        "quark",
        FROM_11,
        [("", "required", ("global_quant_config",))],
    ),
}


@pytest.mark.parametrize("name", WILD)
def test_a_config_of_the_wild_is_recognised_and_reported_as_what_it_is(name: str) -> None:
    mode, candidates, wrong = WILD[name]
    config = blocks.wild(name)
    block = config.get("quantization_config", config)
    verdict = detect(block)
    assert (verdict.mode, verdict.candidates, verdict.version) == (mode, candidates, candidates[-1])
    assert verdict.known
    assert not verdict.contradicted
    if not wrong:
        assert load_config(config).model_dump(exclude_unset=True) == block
        return
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    assert [(error.pointer, error.keyword, error.keys) for error in caught.value.errors] == wrong
    assert caught.value.format == verdict
    assert all(f"{pointer or '/'}: " in str(caught.value) for pointer, _, _ in wrong)


def test_every_config_of_the_wild_is_judged() -> None:
    others = {"sister_compressed_tensors_pack_quantized", "user_script_ptpc_fp8_full_spec"}
    assert set(WILD) | others == set(blocks.wild_names())


def test_a_layer_configuration_alone_is_no_block() -> None:
    layer = blocks.wild("user_script_ptpc_fp8_full_spec")
    assert detect(layer) == Format(known=False, evidence=("it has no quant_method",))
    with pytest.raises(ConfigError, match="no known format"):
        load_config(layer)
    block = {"quant_method": "quark", "global_quant_config": layer}
    assert load_config(block).model_dump(exclude_unset=True) == block


SISTERS: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
    ({"quant_method": "compressed_tensors"}, "compressed-tensors"),
    ({"config_groups": {}, "format": "float-quantized"}, "compressed-tensors"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt"),
    ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "modelopt"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
    ({"quant_method": "GPTQ"}, "gptq"),
    ({"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "autoawq"),
    (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        "deepseek-fp8",
    ),
    ({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}, "deepseek-fp8"),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
    ({"quant_method": "fp8", "modules_to_not_convert": None}, "fp8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
    ({"load_in_8bit": True}, "bitsandbytes"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": []}, "mxfp4"),
    ({"quant_method": "torchao", "quant_type": {}}, "torchao"),
    ({"quant_method": "auto-round", "bits": 4}, "auto-round"),
    ({"quant_method": "intel/auto-round"}, "auto-round"),
    *(({"quant_method": name}, name) for name in ("hqq", "quanto", "aqlm", "eetq", "higgs", "vptq", "spqr")),
    ({"quant_method": "fbgemm_fp8"}, "fbgemm-fp8"),
]


@pytest.mark.parametrize(("block", "sister"), SISTERS)
def test_a_sister_format_is_named_and_not_read(block: dict[str, Any], sister: str) -> None:
    verdict = detect(block)
    assert (verdict.sister, verdict.mode, verdict.version, verdict.known) == (sister, None, None, True)
    with pytest.raises(ConfigError, match=f"the config is of {sister}, not of Quark"):
        load_config({"quantization_config": block})


def test_an_unknown_method_is_said_to_be_unknown() -> None:
    verdict = detect({"quant_method": "quark2", "global_quant_config": {}})
    assert verdict == Format(known=False, evidence=("quant_method is quark2",))


def without(block: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The block without some of its keys."""
    return {key: value for key, value in block.items() if key not in keys}


def test_missing_and_null_versions_are_found_by_their_keys() -> None:
    for name in exports.names():
        block, version = blocks.exported(name), blocks.exporter_version(name)
        if "version" not in block or block["quant_method"] != "quark":
            continue
        for changed in (without(block, "version"), {**block, "version": None}):
            verdict = detect(changed)
            assert (verdict.version, verdict.declared, verdict.contradicted) == (version, None, False), name


@pytest.mark.parametrize(
    ("text", "version", "known"),
    [
        ("0.13", "0.13", True),
        ("0.13.1", "0.13", True),
        ("0.13.dev20260101", "0.13", True),
        ("0.13+9d3d471cdf1", "0.13", True),
        ("v0.13", "0.13", True),
        ("0.14", "0.13", False),
        ("1.0", "0.13", False),
        ("0.100", "0.13", False),
        ("nightly", "0.13", False),
        ("", "0.13", False),
        ("9" * 5000, "0.13", False),
    ],
)
def test_odd_and_unknown_versions_are_read_with_the_nearest_schema(
    text: str, version: str, known: bool
) -> None:
    verdict = detect({**blocks.exported("llama_nvfp4"), "version": text})
    assert (verdict.version, verdict.known, verdict.declared) == (version, known, text)
    assert not verdict.contradicted


def test_the_catalog_reads_versions_as_its_examples_say() -> None:
    for example in table("catalog.json")["version_string"]["examples"]:
        block = {"quant_method": "quark", "global_quant_config": {}, "version": example["text"]}
        assert (detect(block).version, detect(block).known) == (example["version"], True)


def test_a_version_below_the_oldest_is_unknown() -> None:
    verdict = detect({"quant_method": "quark", "global_quant_config": {}, "version": "0.5.1"})
    assert not verdict.known


def test_a_declared_version_that_keys_disprove_is_contradicted() -> None:
    newer = detect({**blocks.exported("llama_nvfp4"), "version": "0.10"})
    assert (newer.version, newer.declared, newer.contradicted) == ("0.13", "0.10", True)
    assert any("zero_point_type" in says for says in newer.evidence)
    older = detect({**blocks.exported("q0.10_llama_int8"), "version": "0.13"})
    assert (older.version, older.declared, older.contradicted) == ("0.13", "0.13", True)


def test_keys_that_contradict_each_other_are_said() -> None:
    verdict = detect({**blocks.exported("llama_nvfp4"), "algo_config": {"name": "gptq"}})
    assert (verdict.version, verdict.contradicted) == ("0.13", True)


def test_one_dropped_key_does_not_change_the_version() -> None:
    block = blocks.exported("llama_nvfp4")
    for key in ("softmax_quant_spec", "kv_cache_quant_config", "kv_cache_post_rope", "exclude"):
        verdict = detect(without(block, key))
        assert (verdict.version, verdict.contradicted) == ("0.13", False), key


def test_a_list_of_specs_and_a_null_exclude_bound_the_version() -> None:
    listed = {"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp4"}]}}
    assert detect(listed).candidates == FROM_9
    old = {**blocks.exported("q0.6.0_llama_fp8"), "exclude": None}
    assert detect(old).candidates == ("0.6",)


def test_blocks_are_located_where_readers_look() -> None:
    one, two = {"quant_method": "quark"}, {"quant_method": "fp8"}
    assert locate({"quantization_config": one}) == [("/quantization_config", one)]
    assert locate({"text_config": {"quantization_config": one}, "quantization_config": two}) == [
        ("/quantization_config", two),
        ("/text_config/quantization_config", one),
    ]
    assert locate({"quantization_config": None, "llm_config": {"quantization_config": one}}) == [
        ("/llm_config/quantization_config", one)
    ]
    nested = {"thinker_config": {"text_config": {"quantization_config": one}}}
    assert locate(nested) == [("/thinker_config/text_config/quantization_config", one)]
    assert locate({"compression_config": one}) == [("/compression_config", one)]
    assert locate({"quantization_config": "quark"}) == [("/quantization_config", "quark")]
    assert locate({"text_config": None, "model_type": "llama"}) == []


def test_a_config_is_read_from_a_folder_a_file_its_content_and_its_block(tmp_path: Path) -> None:
    config = exports.load("llama_nvfp4")["config"]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    expected = load_config(config["quantization_config"])
    assert type(expected).__module__ == "quark_format.models.v0_13"
    assert type(expected).__name__ == "QuarkConfig"
    nested = {"model_type": "llava", "text_config": config}
    assert load_config(tmp_path) == load_config(str(file)) == load_config(config) == expected
    assert load_config(nested) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "does not hold a JSON object"),
        ("{}", "has no quantization_config"),
        ('{"quantization_config": "quark"}', 'is not an object but "quark"'),
        ('{"quantization_config": {}}', "no known format: it has no quant_method"),
        ('{"quantization_config": {"quant_method": 1}}', "no known format"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(tmp_path)


def test_an_error_lists_pointers_values_and_messages_but_not_without_end() -> None:
    block = blocks.exported("llama_nvfp4")
    block["layer_quant_config"] = {f"l{i}": {"target_device": f"tpu{i}"} for i in range(50)}
    with pytest.raises(ConfigError) as caught:
        load_config(block)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the config is not valid in format version 0.13"
    assert lines[1] == '  /layer_quant_config/l0/target_device: "tpu0" is not one of cpu, ipu, null'
    assert lines[-1] == "  … and 30 more"
    first = caught.value.errors[0]
    assert isinstance(first, SchemaError)
    assert (first.expected, first.actual, first.rule) == (["cpu", "ipu", None], "tpu0", None)


def test_a_pointer_escapes_what_json_pointers_escape() -> None:
    block = {"quant_method": "quark", "global_quant_config": {}, "layer_quant_config": {"a/b~c": 1}}
    assert [error.pointer for error in schema_errors(block, "0.13")] == ["/layer_quant_config/a~1b~0c"]
