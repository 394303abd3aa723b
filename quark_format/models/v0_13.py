# ruff: noqa: D101, E501, RUF012
"""Generated from schema/v0.13/config.schema.json by tools/build_models.py. Do not edit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from quark_format.conditions import FormatModel


class Export(FormatModel):
    """
    The exporter's settings, the dataclass JsonExporterConfig as an object.
    """

    weight_format: Literal["real_quantized", "fake_quantized"] = "real_quantized"
    """
    Whether the file holds packed low-precision weights or float weights that carry their scales.
    """
    pack_method: Literal["reorder", "order"] | None = "reorder"
    """
    Order of the sub-byte values in a packed word; null is found in hand-made files and read as the default.
    """
    kv_cache_group: list[str] | None = []
    """
    The patterns of the modules whose outputs are the quantized KV cache. 0.10 fills it without KV quantization and can write null.
    """
    weight_merge_groups: list[list[str]] | None = None
    """
    Groups of modules whose weight scales were made equal; always null from 0.10.
    """
    min_kv_scale: float = 0.0
    """
    The value that KV cache scales were raised to.
    """


class TensorSpec(FormatModel):
    """
    How one tensor is quantized, in one stage.
    """

    dtype: Literal[
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "int4",
        "uint4",
        "int3",
        "int2",
        "uint2",
        "bfloat16",
        "float16",
        "fp8_e5m2",
        "fp8_e4m3",
        "fp8_e5m3",
        "fp6_e3m2",
        "fp6_e2m3",
        "fp4",
        "mx",
        "mx6",
        "mx9",
        "bfp16",
    ]
    """
    The number format of the quantized values, by name.
    """
    is_dynamic: bool | None = None
    """
    Whether scales are computed at run time rather than stored.
    """
    qscheme: Literal["per_tensor", "per_channel", "per_group", "per_block"] | None = None
    """
    Which values share one scale.
    """
    ch_axis: int | None = None
    """
    The axis along which channels are counted or groups are formed; may be negative.
    """
    group_size: int | None = None
    """
    Values that share one scale along ch_axis, or the block length of the mx formats; -1 is the whole axis.
    """
    block_size: Annotated[list[int] | None, Field(max_length=2, min_length=2)] = None
    """
    Rows and columns that share one scale.
    """
    symmetric: bool | None = None
    """
    Whether the zero point is zero.
    """
    round_method: Literal["round", "floor", "half_even"] | None = None
    """
    How values are rounded.
    """
    scale_type: (
        Literal["float", "pof2", "float32", "float16", "bfloat16", "float8_e5m3", "float8_e8m0fnu"] | None
    ) = None
    """
    The dtype of the stored scales; float is the model's own dtype.
    """
    zero_point_type: Literal["int32", "float32"] | None = "int32"
    """
    The dtype of zero points; null is read as int32.
    """
    scale_format: str | None = None
    """
    The number format that scales are rounded to; Quark reads any string and knows e8m0, e4m3, e5m3 and float32.
    """
    scale_calculation_mode: str | None = None
    """
    How an e8m0 scale is rounded; Quark reads any string, and null as even.
    """
    mx_element_dtype: (
        Literal[
            "int8",
            "uint8",
            "int16",
            "uint16",
            "int32",
            "int4",
            "uint4",
            "int3",
            "int2",
            "uint2",
            "bfloat16",
            "float16",
            "fp8_e5m2",
            "fp8_e4m3",
            "fp8_e5m3",
            "fp6_e3m2",
            "fp6_e2m3",
            "fp4",
            "mx",
            "mx6",
            "mx9",
            "bfp16",
        ]
        | None
    ) = None
    """
    The element format of dtype mx.
    """
    observer_cls: str | None = None
    """
    The class that found the ranges. An unknown name is read as PlaceholderObserver.
    """
    is_scale_quant: bool = False
    """
    Whether this stage quantizes the scales of the stage before it rather than the tensor.
    """
    enable_buffer_reuse: bool = False
    """
    Whether PerBlockMXObserver reuses its buffers; no effect on the file.
    """
    max_input_numel: int = 4194304
    """
    Most elements for which buffers are reused; no effect on the file.
    """


class OtherAlgorithm(FormatModel):
    """
    An algorithm this version does not know. Quark refuses to reload it; nothing else depends on it.
    """

    name: str
    """
    A name that is none of this version's algorithms.
    """


class SmoothAlgorithm(FormatModel):
    """
    Moves activation outliers into the weights; the factors are already folded into the stored weights.
    """

    name: Literal["smooth"]
    """
    The constant that names the algorithm.
    """
    alpha: float = 1
    """
    Share of the quantization difficulty that is moved from activations to weights.
    """
    scale_clamp_min: float = 0.001
    """
    The value that smoothing factors were raised to.
    """
    scaling_layers: list[dict[str, Any]] = []
    """
    Which modules are scaled together, as free-form objects.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """


class AwqAlgorithm(FormatModel):
    """
    Scales weight channels by activation magnitude; the factors are already folded into the stored weights.
    """

    name: Literal["awq"]
    """
    The constant that names the algorithm.
    """
    scaling_layers: list[dict[str, Any]] = []
    """
    Which modules are scaled together, as free-form objects.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """


class GptqAlgorithm(FormatModel):
    """
    Rounds weights column by column with error compensation; the stored weights are the result.
    """

    name: Literal["gptq"]
    """
    The constant that names the algorithm.
    """
    block_size: int = 128
    """
    Columns that are updated together.
    """
    damp_percent: float = 0.01
    """
    Share of the mean Hessian diagonal that is added to it.
    """
    desc_act: bool = True
    """
    Whether columns were handled in order of decreasing activation.
    """
    static_groups: bool = True
    """
    Whether group scales were fixed before columns were reordered.
    """
    inside_layer_modules: list[str] = []
    """
    Names of the quantized modules inside one decoder layer, in order.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """


class GptaqAlgorithm(FormatModel):
    """
    GPTQ with asymmetric calibration; the stored weights are the result.
    """

    name: Literal["gptaq"]
    """
    The constant that names the algorithm.
    """
    block_size: int = 128
    """
    Columns that are updated together.
    """
    damp_percent: float = 0.01
    """
    Share of the mean Hessian diagonal that is added to it.
    """
    alpha: float = 0.25
    """
    Weight of the asymmetric correction term.
    """
    desc_act: bool = True
    """
    Whether columns were handled in order of decreasing activation.
    """
    static_groups: bool = True
    """
    Whether group scales were fixed before columns were reordered.
    """
    inside_layer_modules: list[str] = []
    """
    Names of the quantized modules inside one decoder layer, in order.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """


class AutoSmoothQuantAlgorithm(FormatModel):
    """
    SmoothQuant with searched factors; they are already folded into the stored weights.
    """

    name: Literal["autosmoothquant"]
    """
    The constant that names the algorithm.
    """
    scaling_layers: list[dict[str, Any]] | None = None
    """
    Which modules are scaled together, as free-form objects.
    """
    model_decoder_layers: str | None = None
    """
    Name of the module that holds the decoder layers.
    """
    compute_scale_loss: str | None = "MSE"
    """
    The loss that the factor search minimised.
    """


class OnlineRotation(FormatModel):
    """
    How a trainable online R1 is shared between modules.
    """

    shared_parallel: bool | None = None
    """
    Whether modules that read the same input share one rotation; null is undecided.
    """
    online_rotation_layers: list[str] | None = None
    """
    Names of the modules with an online rotation; null is all.
    """
    use_input_prescale: bool = False
    """
    Whether the input is scaled before the rotation.
    """


class QronosAlgorithm(FormatModel):
    """
    Rounds weights with correction of past errors; the stored weights are the result.
    """

    name: Literal["qronos"]
    """
    The constant that names the algorithm.
    """
    inside_layer_modules: list[str] = []
    """
    Names of the quantized modules inside one decoder layer, in order.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """
    block_size: int = 128
    """
    Columns that are updated together.
    """
    desc_act: bool = True
    """
    Whether columns were handled in order of decreasing activation.
    """
    static_groups: bool = True
    """
    Whether group scales were fixed before columns were reordered.
    """
    alpha: float = 0.001
    """
    Share of the largest singular value that is added to the Hessian.
    """
    beta: float = 10000.0
    """
    Damping of the first step.
    """


class SvdquantAlgorithm(FormatModel):
    """
    Keeps a low-rank part of each weight in high precision and quantizes the rest.
    """

    name: Literal["svdquant"]
    """
    The constant that names the algorithm.
    """
    svd_rank: int = 32
    """
    Rank of the high-precision part.
    """
    smooth_alpha: float = 0.5
    """
    Migration strength of the smoothing step.
    """
    search_alpha: bool = True
    """
    Whether the migration strength was searched.
    """
    alpha_candidates: list[float] | None = None
    """
    Strengths that were tried; null is the built-in list.
    """
    alpha_search_max_samples: int = 8
    """
    Most samples used by the search.
    """
    exclude_patterns: list[str] = ["time_embedding", "add_time_proj", "conv_in", "conv_out", "time_proj"]
    """
    Parts of names of modules that are skipped.
    """
    min_layer_size: int = 256
    """
    Layers with fewer features are skipped.
    """
    use_gptq: bool = False
    """
    Whether the low-precision part was rounded by GPTQ.
    """
    gptq_n_bits: int = 4
    """
    Width of the GPTQ grid.
    """
    gptq_symmetric: bool = True
    """
    Whether the GPTQ grid is symmetric.
    """
    gptq_group_size: int = -1
    """
    Group size of the GPTQ grid; -1 is the whole axis.
    """
    gptq_blocksize: int = 128
    """
    Columns that are updated together.
    """
    gptq_percdamp: float = 0.01
    """
    Share of the mean Hessian diagonal that is added to it.
    """
    gptq_actorder: bool = False
    """
    Whether columns were handled in order of decreasing activation.
    """


class AutoroundAlgorithm(FormatModel):
    """
    Learns the rounding of weights; the stored weights are the result. Quark 0.13 cannot reload it.
    """

    name: Literal["autoround"]
    """
    The constant that names the algorithm.
    """
    iters: int = 200
    """
    Optimisation steps per block.
    """
    lr: float = 0.005
    """
    Learning rate of the rounding.
    """
    enable_minmax_tuning: bool = True
    """
    Whether ranges were learned too.
    """
    minmax_lr: float = 0.005
    """
    Learning rate of the ranges.
    """
    batch_size: int = 8
    """
    Samples per optimisation step.
    """
    inside_layer_modules: list[str] = []
    """
    Names of the quantized modules inside one decoder layer, in order.
    """
    model_decoder_layers: str = ""
    """
    Name of the module that holds the decoder layers.
    """


class TwobitscalarAlgorithm(FormatModel):
    """
    An experimental two-bit rounding whose result is stored in the model's own dtype.
    """

    name: Literal["twobitscalar"]
    """
    The constant that names the algorithm.
    """
    bits: int = 2
    """
    Width of a weight.
    """
    group_size: int = 64
    """
    Input channels per group.
    """
    sub_group_size: int = 0
    """
    Input channels per scale inside a group; 0 is the whole group.
    """
    act_scale_alpha: float = 0.5
    """
    Strength of the temporary activation-aware scaling.
    """
    scale_clip_min: float = 0.25
    """
    Lower bound of that scaling.
    """
    scale_clip_max: float = 4.0
    """
    Upper bound of that scaling.
    """
    calib_batches: int | None = None
    """
    Batches used; null is all.
    """
    max_samples_per_layer: int = 2048
    """
    Most activation rows kept per layer.
    """
    max_rows_per_batch: int = 256
    """
    Most activation rows kept per batch.
    """
    min_in_features: int = 16
    """
    Layers with fewer input features are skipped.
    """
    include_layers: list[str] | None = None
    """
    Patterns of the layers to quantize; null is all.
    """
    exclude_layers: list[str] | None = None
    """
    Patterns of the layers to skip; null is none.
    """
    enable_incoherence: bool = False
    """
    Whether groups are rotated before rounding.
    """
    incoherence_seed: int = 1234
    """
    Seed of that rotation.
    """
    num_hadamard_passes: int = 1
    """
    Number of rotation passes.
    """
    enable_output_rotation: bool = False
    """
    Whether output rows are rotated too.
    """
    use_lloyd_max_levels: bool = False
    """
    Whether inner levels are optimal for a normal distribution.
    """
    use_hessian_weighted_scale: bool = False
    """
    Whether the scale search weighs errors by the Hessian.
    """
    fine_scale_grid: bool = False
    """
    Whether the scale search uses 41 points instead of 9.
    """
    adaptive_grid_levels: bool = False
    """
    Whether scale and inner level are searched together.
    """
    enable_blockwise_hessian: bool = False
    """
    Whether groups are whitened by their Hessian.
    """
    hess_damp: float = 0.1
    """
    Damping of that Hessian.
    """
    hess_max_rows: int = 2048
    """
    Most rows used for that Hessian.
    """
    hess_every_n_groups: int = 1
    """
    The Hessian is applied to every n-th group.
    """
    hess_min_group_size: int = 8
    """
    Smaller groups are not whitened.
    """
    do_quantize: bool = True
    """
    Whether weights were rounded at all.
    """
    preserve_weight_dtype: bool = True
    """
    Whether rounded weights keep the model's dtype.
    """
    verbose: bool = False
    """
    Whether progress was printed; no effect on the file.
    """
    debug_dump_per_layer: bool = False
    """
    Whether per-layer errors were printed; no effect on the file.
    """
    dump_sidecar_dir: str | None = None
    """
    Folder on the exporting machine for the transforms; null is none.
    """


class Fp8Config(FormatModel):
    """
    The block of the custom mode fp8, a per-tensor FP8 checkpoint in the form vLLM's fp8 reader knows.
    """

    quant_method: Literal["fp8"]
    """
    The constant that names this mode.
    """
    activation_scheme: Literal["static", "dynamic"] | None = None
    """
    Whether input scales are stored, computed at run time, or absent because only weights are quantized.
    """
    ignored_layers: list[str] | None = []
    """
    Names of the modules that are not quantized; null is read as none.
    """
    kv_cache_scheme: Literal["static", "dynamic"] | None = None
    """
    Whether KV cache scales are stored, computed at run time, or the cache is not quantized.
    """
    export: Export | None = None
    """
    How the exporter laid the tensors out; 0.6.0 never adds it to a custom mode, 0.10 and later always.
    """


class AwqConfig(FormatModel):
    """
    The block of the custom mode awq, in the form of AutoAWQ with Quark's pack_method added.
    """

    quant_method: Literal["awq"]
    """
    The constant that names this mode.
    """
    bits: Literal[4, 8]
    """
    Width of a stored weight; AWQ readers know 4.
    """
    group_size: int | None = None
    """
    Input channels that share one scale.
    """
    zero_point: bool = True
    """
    Whether the weights are asymmetric.
    """
    version: str = "gemm"
    """
    The name of AutoAWQ's packing; not a version of Quark.
    """
    modules_to_not_convert: list[str] | None = None
    """
    Names of the modules that are not quantized; null is read as none.
    """
    pack_method: Literal["reorder", "order"] = "reorder"
    """
    Order of the 4-bit values in a word; AutoAWQ's own order is reorder.
    """
    export: Export | None = None
    """
    How the exporter laid the tensors out; 0.6.0 never adds it to a custom mode, 0.10 and later always.
    """


class LayerConfig(FormatModel):
    """
    What is quantized in a layer, and how. A tensor whose key is null or absent is not quantized.
    """

    input_tensors: TensorSpec | list[TensorSpec] | None = None
    """
    How the layer's input is quantized; a list is quantized in that many stages.
    """
    output_tensors: TensorSpec | list[TensorSpec] | None = None
    """
    How the layer's output is quantized; for key and value projections it is the KV cache.
    """
    weight: TensorSpec | list[TensorSpec] | None = None
    """
    How the layer's weight is quantized and stored; a list is quantized in that many stages.
    """
    bias: TensorSpec | list[TensorSpec] | None = None
    """
    How the layer's bias is quantized.
    """
    target_device: Literal["cpu", "ipu"] | None = None
    """
    The device class the configuration was made for; not read at load time.
    """


class RotationAlgorithm(FormatModel):
    """
    Rotates weights and activations by orthogonal matrices. Offline rotations are folded into the stored weights; an online one must be applied by the reader.
    """

    name: Literal["rotation"]
    """
    The constant that names the algorithm.
    """
    scaling_layers: dict[str, list[dict[str, Any]]] = {}
    """
    Which modules are rotated together, by the part of the model, as free-form objects.
    """
    model_decoder_layers: str = "model.layers"
    """
    Name of the module that holds the decoder layers.
    """
    r1: bool = True
    """
    Whether the residual stream is rotated.
    """
    r2: bool = False
    """
    Whether values and the attention output are rotated.
    """
    r3: bool = False
    """
    Whether queries and keys are rotated at run time.
    """
    r4: bool = False
    """
    Whether the input of the last MLP projection is rotated at run time.
    """
    rotation_size: int | None = None
    """
    Order of the Hadamard blocks; null is the whole dimension.
    """
    random_r1: bool = False
    """
    Whether R1 is a random Hadamard matrix.
    """
    random_r2: bool = False
    """
    Whether R2 is a random Hadamard matrix.
    """
    backbone: str = "model"
    """
    Name of the module that holds the decoder.
    """
    v_proj: str = "self_attn.v_proj"
    """
    Name of the value projection in a layer.
    """
    o_proj: str = "self_attn.o_proj"
    """
    Name of the attention output projection in a layer.
    """
    self_attn: str = "self_attn"
    """
    Name of the attention module in a layer.
    """
    mlp: str = "mlp"
    """
    Name of the MLP module in a layer.
    """
    online_r1_rotation: bool | None = None
    """
    Whether R1 is applied at run time instead of being folded into the weights.
    """
    online_config: OnlineRotation | None = None
    """
    Settings of a trainable online R1; null when there is none.
    """
    trainable: bool = False
    """
    Whether the rotations were trained.
    """
    train_smooth: bool | None = None
    """
    Whether smoothing factors were trained with the rotations.
    """
    smooth_positions: list[str] | None = None
    """
    Where trained smoothing factors apply.
    """


class QuarkConfig(FormatModel):
    """
    The block in quark mode, the exporter's own and complete form.
    """

    quant_method: Literal["quark"]
    """
    The constant that names this mode.
    """
    global_quant_config: LayerConfig
    """
    How a linear layer is quantized unless a more specific entry or exclude says otherwise.
    """
    layer_quant_config: Annotated[dict[str, LayerConfig] | None, Field(validate_default=True)] = {}
    """
    Layer configurations by module-name pattern. Quark matches with fnmatch on the full name and takes the first match in the order of the file; null is read as no entry.
    """
    layer_type_quant_config: Annotated[dict[str, LayerConfig] | None, Field(validate_default=True)] = {}
    """
    Layer configurations by class name of the module. Quark reloads only Linear, Conv2d and ConvTranspose2d; null is read as no entry.
    """
    exclude: list[str] | None = []
    """
    Names or fnmatch patterns of modules that are not quantized. Releases from 0.8 write expanded names, earlier ones the patterns the user gave; 0.6.0 writes null for no exclusion.
    """
    algo_config: (
        list[
            SmoothAlgorithm
            | AwqAlgorithm
            | GptqAlgorithm
            | GptaqAlgorithm
            | AutoSmoothQuantAlgorithm
            | RotationAlgorithm
            | QronosAlgorithm
            | SvdquantAlgorithm
            | AutoroundAlgorithm
            | TwobitscalarAlgorithm
            | OtherAlgorithm
        ]
        | None
    ) = None
    """
    The algorithms that changed the weights before quantization, in order of application.
    """
    quant_mode: Literal["eager_mode", "fx_graph_mode"] = "eager_mode"
    """
    Which of Quark's two front ends quantized the model.
    """
    softmax_quant_spec: TensorSpec | None = None
    """
    How the attention probabilities are quantized; null when they are not.
    """
    version: str | None = None
    """
    The version of the library that built the configuration; null when a file of 0.8 or older was exported again. It is not a version of the format.
    """
    kv_cache_quant_config: Annotated[dict[str, LayerConfig] | None, Field(validate_default=True)] = {}
    """
    Layer configurations by module-name pattern whose output_tensors quantize the KV cache.
    """
    kv_cache_post_rope: bool = False
    """
    Whether keys are quantized after the rotary embedding, inside the cache update.
    """
    export: Export | None = None
    """
    How the exporter laid the tensors out. Quark adds it at export; null is read as absent.
    """


class ConfigBlock(RootModel[QuarkConfig | Fp8Config | AwqConfig]):
    root: Annotated[QuarkConfig | Fp8Config | AwqConfig, Field(title="ConfigBlock")]
    """
    The quantization_config block of a checkpoint's config.json, quark mode and the custom modes fp8 and awq. This schema says what a block must be for its meaning to be read; other keys are allowed.
    """
