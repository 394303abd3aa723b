"""The declared format: JSON only, see `README.md` in this folder."""
