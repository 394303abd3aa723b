# ruff: noqa
"""Generated from schema/targets/vllm-0.22/config.schema.json by tools/build_target_models.py. Do not edit."""

from __future__ import annotations

from pydantic import BaseModel, Field
from typing import Annotated, Any, Literal


class VllmExport(BaseModel):
    """
    Without it vLLM raises ValueError (quark/quark.py:145-150).
    """

    kv_cache_group: list[str] | str
    """
    null or absent raises TypeError, since its length is taken (quark/quark.py:159).
    """
    pack_method: str | None = None
    """
    Kept, and read by no scheme.
    """


class VllmConfig(BaseModel):
    """
    What vLLM 0.22 needs of a Quark config beyond the format. Keys that it does not read are not named.
    """

    quant_method: Literal["quark"]
    export: Annotated[VllmExport, Field(title="VllmExport")]
    """
    Without it vLLM raises ValueError (quark/quark.py:145-150).
    """
    exclude: list[str] | str
    """
    null or absent raises TypeError, since it is iterated over (quark/utils.py:80-87).
    """
    global_quant_config: dict[str, Any]
    """
    null or absent raises AttributeError at the first layer that it decides for (quark/quark.py:579-589).
    """
    layer_quant_config: dict[str, dict[str, Any]]
    """
    Its order decides; null or absent raises AttributeError, as does a null entry (quark/quark.py:559-570).
    """
    layer_type_quant_config: dict[str, Any]
    """
    null or absent raises TypeError; its entries are never found (quark/quark.py:572-577).
    """
