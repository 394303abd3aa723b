"""Rotation of activations along their features, as amd-quark 0.13 does it at run time."""

from __future__ import annotations

import math

import torch


def rotation_matrix(stored: torch.Tensor) -> torch.Tensor:
    """The orthogonal matrix of a stored one: a trained matrix as it is, a Hadamard matrix of ±1 scaled."""
    if stored.is_floating_point():
        return stored
    return stored.to(torch.float32) / math.sqrt(stored.shape[0])


def rotate(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """`x` [..., features] times `matrix` [size, size], block by block of its features, in float64.

    Source: amd-quark 0.13 torch/algorithm/rotation/rotation_utils.py:58-110.
    """
    blocks = x.unflatten(-1, (-1, matrix.shape[0])).to(torch.float64)
    return (blocks @ matrix.to(torch.float64)).to(x.dtype).flatten(-2)


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """`x` [..., features] times the Hadamard matrix of all its features, a power of two, by butterflies.

    The sums are rounded to the dtype of `x` stage by stage. Source: amd-quark 0.13
    torch/algorithm/rotation/hadamard.py:58-84.
    """
    features = x.shape[-1]
    halves = x.reshape(-1, features, 1)
    while halves.shape[1] > 1:
        pairs = halves.unflatten(1, (-1, 2))
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        halves = torch.stack((first + second, first - second), 2).flatten(2)
    return halves.reshape(x.shape) / torch.tensor(features, device=x.device).sqrt()
