"""Typed models of every format version, generated from schema/."""
