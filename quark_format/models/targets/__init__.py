"""Typed models of the target tables, generated from `schema/targets/` by `tools/build_target_models.py`."""
