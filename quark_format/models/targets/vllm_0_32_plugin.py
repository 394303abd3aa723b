# ruff: noqa
"""Generated from schema/targets/vllm-0.32-plugin/config.schema.json by tools/build_target_models.py. Do not edit."""

from __future__ import annotations

from pydantic import BaseModel, Field
from typing import Annotated, Any


class VllmPluginExport(BaseModel):
    kv_cache_group: list[str] | None = None
    pack_method: str | None = None


class VllmPluginConfig(BaseModel):
    """
    What the plugin for vLLM 0.32 needs of a Quark config beyond the format.
    """

    global_quant_config: dict[str, Any]
    exclude: list[str] | None = None
    export: Annotated[VllmPluginExport | None, Field(title="VllmPluginExport")] = None
    layer_quant_config: dict[str, Any] | None = None
    layer_type_quant_config: dict[str, Any] | None = None
    kv_cache_quant_config: dict[str, Any] | None = None
