"""The schemas as tools of other makers see them."""
