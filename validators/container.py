"""Findings on the container: config, index and shards as files, before anyone looks at what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quark_format.validators.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quark_format.checkpoint import Checkpoint


def check(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield a finding per problem that reading `checkpoint` met; equal ones of a file are already one."""
    for problem in checkpoint.problems:
        yield finding(problem.code, **problem.values)
