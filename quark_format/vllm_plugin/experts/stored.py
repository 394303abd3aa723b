"""Parameters that keep the tensors of routed experts as they are stored, by expert and projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from quark_format.vllm_plugin.stored import Axis, StoredTensor


class ExpertTensor(StoredTensor):
    """The tensors of one suffix of the projections that vLLM keeps in one parameter (`w13_` or `w2_`).

    It loads with the arguments of vLLM's expert loaders: name of the projection, global number of the expert.
    To torch it is one number for each expert: vLLM's gpt-oss writes scales there, past the loader.
    """

    def __new__(
        cls, name: str, projections: Mapping[str, Any], experts: int, *_: Any, **__: Any
    ) -> ExpertTensor:
        """A parameter that is NaN for every expert, without a gradient."""
        del name, projections
        empty = torch.full((experts,), torch.nan, dtype=torch.float32)
        return torch.nn.Parameter.__new__(cls, empty, requires_grad=False)

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        name: str,
        projections: Mapping[str, tuple[Axis, ...] | None],
        experts: int,
        local: Callable[[int], int],
        rank: int,
        ranks: int,
        device: torch.device,
    ) -> None:
        """Expect a tensor of each of `projections` for each of `experts`.

        `projections` gives the stored axes by vLLM's name of a projection, `local` this rank's number of an
        expert, -1 for one on another rank.
        """
        super().__init__(name, list(projections.values()) * experts, rank, ranks, device)
        self.projections = tuple(projections)
        self.local = local

    @property
    def weight_loader(self) -> Callable[..., bool | None]:
        """What vLLM's models call with the parameter, the tensor, its name, projection and expert."""
        return _load

    def of(self, expert: int, projection: str) -> torch.Tensor | None:
        """The tensor of one projection of this rank's expert number `expert`; None if none was loaded."""
        written = self.data[expert]
        return self.parts[self._place(expert, projection)] if written.isnan() else written

    def _place(self, expert: int, projection: str) -> int:
        return expert * len(self.projections) + self.projections.index(projection)

    def load_expert(self, loaded: torch.Tensor, expert: int, projection: str) -> bool:
        """Take the tensor of a projection of the expert of global number `expert`; False if it is not here.

        Raises:
            StoredShapeError: its size is no multiple of this rank's.
        """
        here = self.local(expert)
        if here < 0:
            return False
        self.load(loaded, self._place(here, projection))
        return True


def _load(  # noqa: PLR0913, PLR0917
    param: ExpertTensor,
    loaded_weight: torch.Tensor,
    weight_name: str,
    shard_id: str,
    expert_id: int,
    return_success: bool = False,
) -> bool | None:
    del weight_name
    done = param.load_expert(loaded_weight, expert_id, shard_id)
    return done if return_success else None
