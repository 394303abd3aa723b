"""Scheme implementations for what vLLM lacks, with the interface of vLLM's `QuarkScheme`."""
