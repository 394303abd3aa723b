# ruff: noqa
"""Generated from schema/targets/vllm-0.32/config.schema.json by tools/build_target_models.py. Do not edit."""

from __future__ import annotations

from pydantic import BaseModel, Field
from typing import Annotated, Any, Literal


class VllmExport(BaseModel):
    """
    Without it vLLM raises ValueError (quark/quark.py:270-276).
    """

    kv_cache_group: list[str] | str
    """
    null or absent raises TypeError, since its length is taken (quark/quark.py:284); a string is read as its letters.
    """
    pack_method: str | None = None
    """
    Passed on as it is; only the int4 scheme reads it.
    """


class VllmConfig(BaseModel):
    """
    What vLLM 0.32 needs of a Quark config beyond the format. Keys that it does not read are not named.
    """

    quant_method: Literal["quark"]
    export: Annotated[VllmExport, Field(title="VllmExport")]
    """
    Without it vLLM raises ValueError (quark/quark.py:270-276).
    """
    exclude: list[str] | str
    """
    null or absent raises TypeError, since it is made a list (utils/config_utils.py:355); a string is read as its letters.
    """
    global_quant_config: dict[str, Any]
    """
    null or absent raises AttributeError at the first layer that it decides for (quark/quark.py:775-808).
    """
    layer_quant_config: dict[str, Any] | None = None
    """
    Its order decides; null is read as empty, except where the KV cache is quantized.
    """
    layer_type_quant_config: dict[str, Any]
    """
    null or absent raises AttributeError; its entries are never found (quark/quark.py:772-779).
    """
