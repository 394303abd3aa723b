"""Choices of the command that the library shares."""

from __future__ import annotations

from enum import StrEnum


class Values(StrEnum):
    """Which values are read."""

    NONE = "none"
    SCALES = "scales"
    ALL = "all"
