"""The table of fault kinds: what each does to a real export, and the findings of which one must name it.

Each kind is a function that yields the mutants of an export, at several places where that makes sense; its
docstring says what it does, its decorator which codes are right and how severe the finding must be at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mutants import EMBEDDING, FLOATS, HEAD, Export, Kind, Mutant, Own

Maker = Callable[[Export], Iterator[Mutant]]
Shape = tuple[int, ...]

NORMS = ("input_layernorm", "post_attention_layernorm", "final_layer_norm", "self_attn_layer_norm")
ROUTERS = ("gate", "router", "shared_expert_gate")
LINEARS = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "gate_proj", "up_proj", "down_proj", "fc1", "fc2"),
    *("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "w1", "w2", "w3"),
)
CONTAINERS = ("model.layers", "model.decoder.layers")
KV_LEAVES = ("k_proj", "v_proj", "kv_b_proj", "self_attn")
KV_SUFFIXES = ("output_scale", "k_scale", "v_scale", "kv_scale")
_MATRIX = 2

KINDS: dict[str, Kind] = {}


def kind(*codes: str, severity: str = "error") -> Callable[[Maker], Maker]:
    """Enter a function into the table as a kind whose mutants must give one of `codes`."""

    def enter(make: Maker) -> Maker:
        name = make.__name__.replace("_", "-")
        KINDS[name] = Kind(name, (make.__doc__ or "").strip(), make, codes, severity)
        return make

    return enter


def named(make: Maker, name: str, does: str) -> Maker:
    """`make` under another name and with another docstring."""
    make.__name__, make.__doc__ = name, does
    return make


def is_kv_scale(name: str) -> bool:
    """Whether the tensor `name` is a scale of the KV cache."""
    module, _, suffix = name.rpartition(".")
    return suffix in KV_SUFFIXES and module.rpartition(".")[2] in KV_LEAVES


def is_matrix(own: Own) -> bool:
    """Whether the module has a float weight of two axes and no scale of it."""
    plain = "weight" in own and not {"weight_scale", "_weight_scale"} & own.keys()
    return plain and own["weight"][0] in FLOATS and len(own["weight"][1]) == _MATRIX


def is_scalar(shape: Shape) -> bool:
    """Whether the shape is that of one number."""
    return shape in ((), (1,))


# --- tensors dropped --------------------------------------------------------------------------------------


@kind("QF307", "QF413")
def drop_weight(export: Export) -> Iterator[Mutant]:
    """A quantized module's weight is missing, its scale is there."""
    for module in export.quantized():
        yield Mutant(export.without(f"{module}.weight"), module)


def dropped(suffix: str) -> Maker:
    """The kind of a missing tensor of `suffix` beside a quantized weight."""

    def drop(export: Export) -> Iterator[Mutant]:
        for module in export.quantized(suffix, salt=len(suffix)):
            if not _takes_anything(export, module):
                yield Mutant(export.without(f"{module}.{suffix}"), f"{module}.{suffix}")

    return named(drop, f"drop_{suffix}", f"A {suffix} is missing.")


for _suffix in ("weight_scale", "weight_zero_point", "input_scale", "input_zero_point"):
    kind("QF301")(dropped(_suffix))
for _suffix in ("weight_scale_2", "weight_zero_point_2", "input_scale_2"):
    kind("QF301")(dropped(_suffix))


def _takes_anything(export: Export, module: str) -> bool:
    """Whether the module's input has a half-precision spec, whose scale is an accident of the exporter."""
    return any(word in export.name for word in ("bf16in",)) and bool(module)


@kind("QF301")
def drop_every_weight_scale(export: Export) -> Iterator[Mutant]:
    """All weight scales are missing."""
    if export.quantized():
        names = [name for name in export.tensors if name.endswith(".weight_scale")]
        yield Mutant(export.without(*names), "weight_scale")


@kind("QF501", "QF505")
def drop_kv_scale(export: Export) -> Iterator[Mutant]:
    """A KV cache scale is missing."""
    for name in [name for name in export.tensors if is_kv_scale(name)][-2:]:
        yield Mutant(export.without(name), name.rpartition(".")[0])


@kind("QF501", "QF505")
def drop_every_kv_scale(export: Export) -> Iterator[Mutant]:
    """All KV cache scales are missing."""
    names = [name for name in export.tensors if is_kv_scale(name)]
    if names:
        yield Mutant(export.without(*names), names[0].rpartition(".")[2])


@kind("QF508")
def drop_attention_scale(export: Export) -> Iterator[Mutant]:
    """The scale of the attention probabilities is missing."""
    for name in [name for name in export.tensors if name.endswith("prob_output_scale")][-1:]:
        yield Mutant(export.without(name), name)


@kind("QF413")
def drop_norm(export: Export) -> Iterator[Mutant]:
    """One layer's norm is missing."""
    for module in export.pick(lambda own: "weight" in own, leaves=NORMS):
        yield Mutant(export.without(*export.below(module)), module)


@kind("QF413")
def drop_last_norm(export: Export) -> Iterator[Mutant]:
    """The norm behind the last layer is missing."""
    for module in ("model.norm", "model.decoder.final_layer_norm"):
        if module in export.modules:
            yield Mutant(export.without(*export.below(module)), module)


@kind("QF410")
def drop_head(export: Export) -> Iterator[Mutant]:
    """The output layer is missing from a model that does not share the embedding."""
    if HEAD in export.modules and export.config.get("tie_word_embeddings") is False:
        yield Mutant(export.without(*export.below(HEAD)), HEAD)


@kind("QF413")
def drop_embedding(export: Export) -> Iterator[Mutant]:
    """The embedding is missing."""
    for module in [module for module in export.modules if module.endswith(EMBEDDING)]:
        yield Mutant(export.without(*export.below(module)), EMBEDDING)


@kind("QF413", "QF301")
def drop_bias(export: Export) -> Iterator[Mutant]:
    """One module's bias is missing in one layer."""
    for module in export.pick(lambda own: "bias" in own, leaves=(*LINEARS, *NORMS)):
        gone = [f"{module}.{suffix}" for suffix in export.modules[module] if suffix.startswith("bias")]
        yield Mutant(export.without(*gone), f"{module}.bias")


@kind("QF407")
def drop_expert(export: Export) -> Iterator[Mutant]:
    """One expert is missing from one layer."""
    parents = sorted({module.rpartition(".")[0] for module in export.modules if ".experts." in module})
    for parent in [parents[0], parents[-1]] if parents else []:
        yield Mutant(export.without(*export.below(parent)), parent.partition(".experts.")[0])


@kind("QF407")
def drop_expert_everywhere(export: Export) -> Iterator[Mutant]:
    """The last expert is missing from every layer."""
    numbers = {
        module.partition(".experts.")[2].partition(".")[0]
        for module in export.modules
        if ".experts." in module
    }
    if numbers:
        last = max(numbers, key=int)
        gone = [name for name in export.tensors if f".experts.{last}." in name]
        yield Mutant(export.without(*gone), "experts")


@kind("QF407", "QF413")
def drop_expert_projection(export: Export) -> Iterator[Mutant]:
    """One projection of one expert is missing."""
    for module in export.pick(lambda own: "weight" in own, leaves=LINEARS):
        if ".experts." in module:
            yield Mutant(export.without(*export.below(module)), module.partition(".experts.")[0])


@kind("QF413")
def drop_router(export: Export) -> Iterator[Mutant]:
    """One layer's router is missing."""
    for module in export.pick(lambda own: "weight" in own, leaves=ROUTERS):
        yield Mutant(export.without(*export.below(module)), module)


@kind("QF413")
def drop_module(export: Export) -> Iterator[Mutant]:
    """A module of one layer is missing with all its tensors."""
    for module in export.pick(lambda own: "weight" in own, salt=1, leaves=LINEARS):
        if ".experts." not in module:
            yield Mutant(export.without(*export.below(module)), module)


@kind("QF413")
def drop_module_of_every_layer(export: Export) -> Iterator[Mutant]:
    """A projection is missing from every layer."""
    for leaf in LINEARS[export.seed % len(LINEARS) :][:3]:
        gone = [n for n in export.tensors if f".{leaf}." in n and ".experts." not in n and "shared" not in n]
        if gone:
            yield Mutant(export.without(*gone), gone[0].partition(f".{leaf}.")[0])


@kind("QF415")
def drop_layer(export: Export) -> Iterator[Mutant]:
    """The first or the last layer is missing."""
    container = next(name for name in CONTAINERS if export.below(name))
    for number in (0, export.config["num_hidden_layers"] - 1):
        yield Mutant(export.without(*export.below(f"{container}.{number}")), container)


@kind("QF314")
def drop_rotation(export: Export) -> Iterator[Mutant]:
    """An online rotation's matrix is missing."""
    for module in export.pick(lambda own: "input_rotation" in own):
        yield Mutant(export.without(f"{module}.input_rotation"), module)


# --- tensors renamed --------------------------------------------------------------------------------------


def foreign(suffix: str, other: str) -> Maker:
    """The kind of a tensor under another convention's name."""

    def rename(export: Export) -> Iterator[Mutant]:
        for module in export.quantized(suffix, salt=len(other)):
            yield Mutant(export.renamed(f"{module}.{suffix}", f"{module}.{other}"), f"{module}.{other}")

    return named(rename, f"rename_{suffix}_to_{other}", f"A {suffix} is called {other}.")


for _suffix, _other in (
    ("weight_scale", "weight_scale_inv"),
    ("weight_scale", "weight_quantizer.scale"),
    ("input_scale", "input_quantizer.scale"),
    ("weight_zero_point", "weight_quantizer.zero_point"),
    ("weight_scale", "scale"),
    ("weight", "weight_packed"),
    ("weight_scale_2", "weight_global_scale"),
):
    kind("QF308")(foreign(_suffix, _other))


@kind("QF301", "QF302", "QF308")
def rename_to_awq_names(export: Export) -> Iterator[Mutant]:
    """A module's scale and zero point have AutoAWQ's names."""
    for module in export.quantized("weight_zero_point"):
        renamed = export.renamed(f"{module}.weight_scale", f"{module}.scales")
        yield Mutant(renamed.renamed(f"{module}.weight_zero_point", f"{module}.qzeros"), module)


@kind("QF301")
def rename_scale_to_unknown(export: Export) -> Iterator[Mutant]:
    """A scale's name has a typing error."""
    for module in export.quantized(salt=5):
        yield Mutant(export.renamed(f"{module}.weight_scale", f"{module}.weight_scales"), module)


@kind("QF308")
def rename_kv_scale_below_projection(export: Export) -> Iterator[Mutant]:
    """A KV scale is called k_proj.k_scale."""
    for leaf, new in (("k_proj", "k_scale"), ("v_proj", "v_scale")):
        for module in export.pick(lambda own: "output_scale" in own, leaves=(leaf,))[:1]:
            yield Mutant(export.renamed(f"{module}.output_scale", f"{module}.{new}"), f"{module}.{new}")


@kind("QF413", "QF407")
def rename_module(export: Export) -> Iterator[Mutant]:
    """One module of one layer has another name."""
    for module in export.pick(lambda own: "weight" in own, salt=2, leaves=LINEARS):
        yield Mutant(export.renamed(module, f"{module}_layer"), module.partition(".experts.")[0])


@kind("QF413", "QF407")
def rename_prefix_of_one_module(export: Export) -> Iterator[Mutant]:
    """One module lost the first part of its name."""
    for module in export.pick(lambda own: "weight" in own, salt=4, leaves=LINEARS):
        yield Mutant(export.renamed(module, module.partition(".")[2]), module.partition(".experts.")[0])


@kind("QF407")
def rename_projection_of_one_expert(export: Export) -> Iterator[Mutant]:
    """One projection of one expert has Mixtral's name, the others not."""
    for module in export.pick(lambda own: "weight" in own, leaves=("gate_proj",)):
        if ".experts." in module:
            renamed = export.renamed(module, module.removesuffix("gate_proj") + "w1")
            yield Mutant(renamed, module.partition(".experts.")[0])


@kind("QF221", severity="warning")
def rename_prefix_of_all(export: Export) -> Iterator[Mutant]:
    """All modules have a prefix that the exclude list has not."""
    if any(entry.startswith("model.layers") for entry in export.block.get("exclude") or []):
        yield Mutant(export.renamed("model", "model.language_model"), "/exclude")


# --- tensors of another dtype -----------------------------------------------------------------------------


def retyped(suffix: str, dtype: str) -> Maker:
    """The kind of a tensor stored as another dtype."""

    def retype(export: Export) -> Iterator[Mutant]:
        for module in export.quantized(suffix, salt=len(dtype)):
            if export.modules[module][suffix][0] != dtype:
                yield Mutant(export.changed(f"{module}.{suffix}", dtype), f"{module}.{suffix}")

    return named(retype, f"retype_{suffix}_to_{dtype}", f"A {suffix} is stored as {dtype}.")


for _suffix, _dtype in (
    ("weight_scale", "I32"),
    ("weight_scale", "I64"),
    ("weight_scale", "I8"),
    ("weight_scale", "BOOL"),
    ("input_scale", "I32"),
    ("input_scale", "F64"),
    ("weight_zero_point", "I64"),
    ("weight_zero_point", "F64"),
    ("input_zero_point", "F16"),
    ("weight_scale_2", "I32"),
    ("weight_zero_point_2", "F32"),
):
    kind("QF303")(retyped(_suffix, _dtype))


@kind("QF303")
def retype_float_scale_to_bytes(export: Export) -> Iterator[Mutant]:
    """A float scale is stored as bytes."""
    for module in export.quantized(salt=3):
        if export.modules[module]["weight_scale"][0] in FLOATS:
            yield Mutant(export.changed(f"{module}.weight_scale", "U8"), f"{module}.weight_scale")


@kind("QF303")
def retype_byte_scale_to_float(export: Export) -> Iterator[Mutant]:
    """An E8M0, E5M3 or FP8 scale is stored as float."""
    for module in export.quantized():
        if export.modules[module]["weight_scale"][0] not in FLOATS:
            yield Mutant(export.changed(f"{module}.weight_scale", "F32"), f"{module}.weight_scale")


@kind("QF303")
def retype_pinned_scale(export: Export) -> Iterator[Mutant]:
    """A scale has not the dtype that scale_type names."""
    pinned = {"float32": "BF16", "float16": "F32", "bfloat16": "F16"}
    spec = (export.block.get("global_quant_config") or {}).get("weight")
    if isinstance(spec, dict) and spec.get("scale_type") in pinned:
        for module in export.quantized():
            name = f"{module}.weight_scale"
            yield Mutant(export.changed(name, pinned[spec["scale_type"]]), name)


@kind("QF403")
def store_dequantized(export: Export) -> Iterator[Mutant]:
    """A weight is stored dequantized, its scale is still there."""
    for module in export.quantized(salt=1):
        yield Mutant(export.changed(f"{module}.weight", "BF16", export.sizes[module]), module)


@kind("QF401")
def store_unquantized(export: Export) -> Iterator[Mutant]:
    """A weight is stored as it was before quantization, without any scale."""
    for module in export.quantized(salt=2):
        gone = [f"{module}.{suffix}" for suffix in export.modules[module] if suffix.startswith("weight_")]
        yield Mutant(export.changed(f"{module}.weight", "BF16", export.sizes[module]).without(*gone), module)


@kind("QF401")
def store_layer_unquantized(export: Export) -> Iterator[Mutant]:
    """The modules of the last layer are stored as before quantization, as exports leave draft layers."""
    inside = [m for m in export.codes if f".{export.config['num_hidden_layers'] - 1}." in m]
    if inside and all(module in export.sizes for module in inside):
        gone = {
            f"{m}.{s}" for m in inside for s in export.modules[m] if s.startswith(("weight_", "input_", "q"))
        }
        floats = {f"{module}.weight": ("BF16", export.sizes[module]) for module in inside}
        yield Mutant(export.having({**export.tensors, **floats}).without(*gone), inside[0].rpartition(".")[0])


@kind("QF303")
def retype_weight(export: Export) -> Iterator[Mutant]:
    """A weight's codes have another dtype of the same width."""
    other = {"F8_E4M3": "I8", "F8_E5M2": "F8_E4M3", "I8": "F8_E4M3", "U8": "I8", "I32": "U32"}
    for module in export.quantized(salt=4):
        dtype = other[export.modules[module]["weight"][0]]
        yield Mutant(export.changed(f"{module}.weight", dtype), f"{module}.weight")


@kind("QF303")
def widen_weight(export: Export) -> Iterator[Mutant]:
    """A weight's codes are stored as 64-bit integers."""
    for module in export.quantized(salt=5):
        yield Mutant(export.changed(f"{module}.weight", "I64"), f"{module}.weight")


@kind("QF303")
def retype_kv_scale(export: Export) -> Iterator[Mutant]:
    """A KV cache scale is an integer."""
    for name in [name for name in export.tensors if is_kv_scale(name)][-2:]:
        yield Mutant(export.changed(name, "I32"), name)


@kind("QF414")
def quantize_norm(export: Export) -> Iterator[Mutant]:
    """A norm is stored as integers."""
    for module in export.pick(lambda own: "weight" in own, leaves=NORMS):
        yield Mutant(export.changed(f"{module}.weight", "I8"), f"{module}.weight")


@kind("QF301", "QF402", "QF404", "QF303")
def quantize_excluded(export: Export) -> Iterator[Mutant]:
    """A module that the config leaves alone is stored as FP8 codes."""
    for module in export.pick(is_matrix):
        yield Mutant(export.changed(f"{module}.weight", "F8_E4M3"), module)


@kind("QF302", "QF402", "QF403", "QF404")
def add_scale_to_excluded(export: Export) -> Iterator[Mutant]:
    """A float weight that the config leaves alone has a scale."""
    for module in export.pick(is_matrix, salt=1):
        yield Mutant(export.changed(f"{module}.weight_scale", "F32", ()), module)


@kind("QF303")
def quantize_bias(export: Export) -> Iterator[Mutant]:
    """An unquantized bias is stored as integers."""
    for module in export.pick(lambda own: "bias" in own and own["bias"][0] in FLOATS, leaves=LINEARS):
        yield Mutant(export.changed(f"{module}.bias", "I32"), f"{module}.bias")


# --- tensors too many -------------------------------------------------------------------------------------


def added(suffix: str, dtype: str, *codes: str) -> None:
    """Enter the kind of a tensor that the spec has not."""

    def add(export: Export) -> Iterator[Mutant]:
        lacking = export.pick(
            lambda own: "weight_scale" in own and suffix not in own and own["weight"][0] not in FLOATS
        )
        for module in lacking:
            yield Mutant(export.changed(f"{module}.{suffix}", dtype, ()), f"{module}.{suffix}")

    kind(*codes)(named(add, f"add_{suffix}", f"A {suffix} is there that no spec asks for."))


added("input_scale", "F32", "QF302")
added("weight_zero_point", "I8", "QF302", "QF313", "QF319")
added("weight_scale_2", "F32", "QF302")
added("input_zero_point", "I8", "QF302", "QF313", "QF319")


# --- tensors of another shape -----------------------------------------------------------------------------

SHAPE_CODES = ("QF304", "QF305", "QF306", "QF310", "QF316", "QF412", "QF416")


def reshaped(name: str, suffix: str, does: str, change: Callable[..., Shape]) -> None:
    """Enter the kind of a tensor whose shape a function of its axes changes; the axes say which ranks."""

    def reshape(export: Export) -> Iterator[Mutant]:
        for module in export.quantized(suffix, salt=len(name)):
            shape = export.modules[module][suffix][1]
            if len(shape) == change.__code__.co_argcount and change(*shape) != shape and not is_scalar(shape):
                mutant = export.changed(f"{module}.{suffix}", shape=change(*shape))
                yield Mutant(mutant, module.partition(".experts.")[0])

    kind(*SHAPE_CODES)(named(reshape, f"{name}_{suffix}", does.format(suffix)))


for _suffix in ("weight", "weight_scale", "weight_zero_point"):
    reshaped("transpose", _suffix, "A {} is transposed.", lambda a, b: (b, a))
    reshaped("flatten", _suffix, "A {} is flattened.", lambda a, b: (a * b,))
    reshaped("halve_rows_of", _suffix, "A {} has half its rows.", lambda a, b: (a // 2, b))
    reshaped("halve_columns_of", _suffix, "A {} has half its columns.", lambda a, b: (a, b // 2))
    reshaped("double_rows_of", _suffix, "A {} has twice its rows.", lambda a, b: (a * 2, b))
    reshaped("double_columns_of", _suffix, "A {} has twice its columns.", lambda a, b: (a, b * 2))
    reshaped("lengthen", _suffix, "A {} has one row more.", lambda a, b: (a + 1, b))
    reshaped("narrow", _suffix, "A {} has one column less.", lambda a, b: (a, b - 1))
    reshaped("batch", _suffix, "A {} has a third axis.", lambda a, b: (1, a, b))
for _suffix in ("weight_scale", "weight_zero_point", "weight_scale_2", "weight_zero_point_2"):
    reshaped("stand_up", _suffix, "A {} per channel is [N, 1].", lambda a: (a, 1))
    reshaped("shorten", _suffix, "A {} per channel lacks one.", lambda a: (a - 1,))
    reshaped("collapse", _suffix, "A {} per channel is one number.", lambda _: (1,))


def unscalar(name: str, suffix: str, shape: Shape) -> None:
    """Enter the kind of a single number stored with another shape."""

    def reshape(export: Export) -> Iterator[Mutant]:
        for module in export.quantized(suffix, salt=len(name)):
            if is_scalar(export.modules[module][suffix][1]):
                yield Mutant(export.changed(f"{module}.{suffix}", shape=shape), f"{module}.{suffix}")

    kind("QF304")(named(reshape, f"{name}_{suffix}", f"A single {suffix} is {list(shape)}."))


for _suffix in ("weight_scale", "input_scale", "weight_scale_2", "weight_zero_point", "input_zero_point"):
    unscalar("box", _suffix, (1, 1))
    unscalar("pair", _suffix, (2,))


@kind("QF316", "QF416", "QF304")
def cut_norm(export: Export) -> Iterator[Mutant]:
    """A norm has half its size."""
    for module in export.pick(lambda own: "weight" in own, leaves=NORMS):
        size = export.modules[module]["weight"][1][0]
        yield Mutant(export.changed(f"{module}.weight", shape=[size // 2]), module)


@kind("QF416", "QF316")
def transpose_embedding(export: Export) -> Iterator[Mutant]:
    """The embedding or the output layer is transposed."""
    for module in [HEAD, *(module for module in export.modules if module.endswith(EMBEDDING))]:
        stored = export.modules.get(module, {}).get("weight")
        if stored and stored[0] in FLOATS and stored[1][0] != stored[1][1]:
            yield Mutant(export.changed(f"{module}.weight", shape=stored[1][::-1]), module)


@kind("QF316", "QF416")
def transpose_excluded(export: Export) -> Iterator[Mutant]:
    """An unquantized projection is transposed."""
    for module in export.pick(is_matrix, leaves=LINEARS):
        shape = export.modules[module]["weight"][1]
        if shape[0] != shape[1]:
            yield Mutant(
                export.changed(f"{module}.weight", shape=shape[::-1]), module.partition(".experts.")[0]
            )


@kind("QF304")
def lengthen_bias(export: Export) -> Iterator[Mutant]:
    """A bias has one element more."""
    for module in export.pick(lambda own: "bias" in own and "weight_scale" in own):
        shape = export.modules[module]["bias"][1]
        yield Mutant(export.changed(f"{module}.bias", shape=[shape[0] + 1]), f"{module}.bias")


@kind("QF506")
def widen_kv_scale(export: Export) -> Iterator[Mutant]:
    """A KV cache scale has two elements."""
    for name in [name for name in export.tensors if is_kv_scale(name)][:2]:
        yield Mutant(export.changed(name, shape=[2]), name)


@kind("QF318")
def cut_rotation(export: Export) -> Iterator[Mutant]:
    """A rotation is not square."""
    for module in export.pick(lambda own: "input_rotation" in own):
        size = export.modules[module]["input_rotation"][1][0]
        yield Mutant(export.changed(f"{module}.input_rotation", shape=[size, size // 2]), module)
