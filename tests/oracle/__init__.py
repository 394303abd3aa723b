"""Verdicts held against loads in the real vLLM: `python -m oracle` in the folder tests."""
