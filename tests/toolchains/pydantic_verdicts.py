"""Reads {models: file, documents: [[class, document]...]}; writes whether each document fits its class."""

from __future__ import annotations

import json
import sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
sys.path.insert(0, str(Path(job["models"]).parent))
models = __import__(Path(job["models"]).stem)


def fits(name: str, document: object) -> bool:
    """Whether the class takes the document as JSON."""
    try:
        getattr(models, name).model_validate_json(json.dumps(document), strict=True)
    except ValueError:
        return False
    return True


sys.stdout.write(json.dumps([fits(name, document) for name, document in job["documents"]]))
