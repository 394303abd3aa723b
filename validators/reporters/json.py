"""One JSON document, described by `schema/report.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from quark_format.validators.report import Report, document


def render(reports: Sequence[Report], stream: TextIO) -> None:
    """Write the document of `reports` in ASCII, everything else escaped."""
    json.dump(document(reports), stream, indent=2)
    stream.write("\n")
