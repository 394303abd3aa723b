"""Reads a job as `ajv_verdicts.mjs` does, and answers it with jsonschema-rs."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

validator_for = import_module("jsonschema_rs").validator_for
job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
compiled = {
    path: validator_for(json.loads(Path(path).read_text(encoding="utf-8"))) for path in job["schemas"]
}
sys.stdout.write(json.dumps([compiled[path].is_valid(document) for path, document in job["documents"]]))
