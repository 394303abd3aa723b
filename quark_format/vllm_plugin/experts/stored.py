"""Parameters that keep the tensors of routed experts as they are stored, by expert and projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from quark_format.vllm_plugin.stored import Axis, StoredTensor


class ExpertTensor(StoredTensor):
    """The tensors of one suffix of the projections that vLLM keeps in one parameter (`w13_` or `w2_`).

    It loads with the arguments of vLLM's expert loaders: name of the projection, global number of the expert.
    """

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
        return self.parts[self._place(expert, projection)]

    def _place(self, expert: int, projection: str) -> int:
        return expert * len(self.projections) + self.projections.index(projection)

    def load_expert(self, loaded: torch.Tensor, expert: int, projections: Sequence[str]) -> bool:
        """Take `loaded`, joined along its first axis if it is of several projections; False if not here.

        Raises:
            StoredShapeError: its size is no multiple of this rank's.
        """
        here = self.local(expert)
        if here < 0:
            return False
        places = tuple(self._place(here, projection) for projection in projections)
        self.load(loaded, places)
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
    done = param.load_expert(loaded_weight, expert_id, (shard_id,))
    return done if return_success else None
