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


class TransformersAlgorithm(BaseModel):
    r3: Literal[False] | None = None


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
    global_quant_config: dict[str, Any]
    """
    null or absent raises TypeError or KeyError (quark/torch/quantization/config/config.py:272).
    """
    layer_quant_config: dict[str, Any] | None
    """
    Absent raises KeyError; null is read as empty (quark/torch/quantization/config/config.py:292-298).
    """
    layer_type_quant_config: dict[Literal["Conv2d", "Linear", "ConvTranspose2d"], Any] | None
    """
    Absent raises KeyError; another type of layer raises NotImplementedError (quark/torch/quantization/config/config.py:277-287).
    """
