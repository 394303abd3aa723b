# ruff: noqa
"""Generated from schema/targets/transformers-5.19/config.schema.json by tools/build_target_models.py. Do not edit."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from pydantic import BaseModel, ConfigDict, Field


class TransformersExport(BaseModel):
    """
    Any other key raises TypeError, since all are passed to a constructor (transformers/utils/quantization_config.py:1784).
    """

    model_config = ConfigDict(
        extra="forbid",
    )
    kv_cache_group: Any | None = None
    min_kv_scale: Any | None = None
    pack_method: Any | None = None
    weight_format: Any | None = None
    weight_merge_groups: Any | None = None


class TransformersSpec(BaseModel):
    """
    A key less raises KeyError (quark/torch/quantization/config/config.py:2012-2057).
    """

    dtype: str
    group_size: Any
    symmetric: Any


class TransformersAlgorithm(BaseModel):
    r3: Literal[False] | None = None


class TransformersLayer(BaseModel):
    """
    A key less raises KeyError (quark/torch/quantization/config/config.py:486-489).
    """

    input_tensors: TransformersSpec | list[TransformersSpec] | None
    output_tensors: TransformersSpec | list[TransformersSpec] | None
    weight: TransformersSpec | list[TransformersSpec] | None
    bias: TransformersSpec | list[TransformersSpec] | None


class TransformersConfig(BaseModel):
    """
    What transformers 5.19.0, and amd-quark 0.13 which it calls, need of a Quark config beyond the format.
    """

    algo_config: TransformersAlgorithm | list[TransformersAlgorithm] | None = None
    """
    Rotations inside the attention are not loaded: NotImplementedError (quark/torch/export/api.py:1243-1246).
    """
    exclude: list[str] | None
    """
    Absent raises KeyError; null is read as empty (quark/torch/quantization/config/config.py:315-318).
    """
    export: Annotated[TransformersExport | None, Field(title="TransformersExport")] = None
    """
    Any other key raises TypeError, since all are passed to a constructor (transformers/utils/quantization_config.py:1784).
    """
    global_quant_config: TransformersLayer
    layer_quant_config: dict[str, Any] | None
    """
    Absent raises KeyError; null is read as empty (quark/torch/quantization/config/config.py:292-298).
    """
    layer_type_quant_config: dict[Literal["Conv2d", "Linear", "ConvTranspose2d"], TransformersLayer] | None
    """
    Absent raises KeyError; another type of layer raises NotImplementedError (quark/torch/quantization/config/config.py:277-287).
    """
    kv_cache_quant_config: dict[str, Any] | None = None
    """
    Read as the others are, and not used.
    """
