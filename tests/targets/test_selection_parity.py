"""Every selection is what vLLM's own code selects, except where a declared deviation says otherwise."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from deviating import Known
from layer_configs import FIELDS, layer_config, sample
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.fused_moe import RoutedExperts, UnquantizedFusedMoEMethod
from vllm.model_executor.layers.linear import ColumnParallelLinear, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.quark import quark
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm_selection import SELECT, Outcome, Raised, Selected, class_of, constructs, key_of

from quark_format.resolver import Refusal, Resolver
from quark_format.selection import Combination, KindIndex
from quark_format.targets import Target, target

AT_LEAST = {"linear": 600_000, "experts": 430_000}
SEED = 20_260_729


@pytest.fixture(scope="module")
def vllm() -> Target:
    return target("vllm@0.32")


def expected(table: Target, one: Combination) -> Selected:
    specs = table.schemes.specs
    assert one.row.scheme is not None
    weight, activation = (key_of(specs[one.specs[position]].key) for position in ("weight", "input"))
    return Selected(class_of(one.row.scheme), weight, activation)


class Comparison:
    """vLLM's answers and ours, counted."""

    def __init__(self, table: Target, kind: str) -> None:
        """Prepare for modules of `kind`."""
        self.kind = kind
        self.index: KindIndex = table.kinds[kind]
        self.positions = {name: one.key for name, one in table.schemes.positions.items() if one.key}
        self.wanted = [expected(table, one) for one in self.index.combinations]
        self.known = Known(table, kind)
        self.outcomes: Counter[str] = Counter()
        self.deviations: Counter[str] = Counter()
        self.combinations: Counter[int] = Counter()
        self.constructed: dict[Selected, bool] = {}
        self.wrong: list[Any] = []

    def compare(self, layer: dict[str, Any], pack_method: Any) -> None:
        outcome = SELECT[self.kind](layer, pack_method)
        subject = {name: layer.get(key) for name, key in self.positions.items()}
        accepted = self.index.accepted(subject, pack_method)
        if accepted & (accepted - 1):
            self.wrong.append(("two rows", layer, pack_method))
        ours = accepted.bit_length() - 1 if accepted else None
        self.outcomes[self._name(outcome, layer, pack_method)] += 1
        if ours is not None:
            self.combinations[ours] += 1
        does = self._deviates(outcome, ours, layer, pack_method)
        if does is None:
            return
        named = [one.id for one in self.known.of(subject, pack_method) if one.target_does == does]
        self.deviations.update(named)
        if not named:
            self.wrong.append((does, str(outcome), ours, layer, pack_method))

    def _deviates(self, outcome: Outcome, ours: int | None, layer: dict[str, Any], pack: Any) -> str | None:
        if isinstance(outcome, Raised):
            if ours is not None:
                return "we accept what vLLM refuses"
            return "crashes" if outcome.crashed else None
        if ours is None:
            return "selects" if self._constructs(outcome, layer, pack) else "selects_then_refuses"
        if outcome != self.wanted[ours]:
            return "we select something else"
        return None if self._constructs(outcome, layer, pack) else "we accept what the class refuses"

    def _constructs(self, outcome: Selected, layer: dict[str, Any], pack_method: Any) -> bool:
        if outcome not in self.constructed:
            self.constructed[outcome] = constructs(outcome, layer, pack_method)
        return self.constructed[outcome]

    def _name(self, outcome: Outcome, layer: dict[str, Any], pack_method: Any) -> str:
        if isinstance(outcome, Raised):
            return outcome.error.__name__
        told = f"{outcome.scheme.__name__} {outcome.weight_key} {outcome.activation_key}"
        return told if self._constructs(outcome, layer, pack_method) else f"{told}, then refused"


@pytest.mark.parametrize("kind", list(AT_LEAST))
def test_selection(vllm: Target, kind: str, record_property: Any, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison(vllm, kind)
    count = 0
    for config in sample(vllm, comparison.index, AT_LEAST[kind], SEED):
        comparison.compare(*layer_config(config))
        count += 1
    with capsys.disabled():
        print(f"\n{kind}: {count:,} different layer configs")  # noqa: T201 - the figures are the result
        for name, number in [*comparison.outcomes.most_common(), *comparison.deviations.most_common()]:
            print(f"{number:>10,}  {name}")  # noqa: T201
            record_property(f"{kind} {name}", number)
    assert not comparison.wrong, f"{len(comparison.wrong):,}, such as {comparison.wrong[:3]}"
    assert count >= AT_LEAST[kind]
    assert set(comparison.combinations) == set(range(len(comparison.index.combinations)))
    assert set(comparison.deviations) == {one.id for one in comparison.known.all}


def test_kv_cache(vllm: Target) -> None:
    """The whole product of the fields that any row of attention looks at, and more of each."""
    index, known = vllm.kinds["attention"], Known(vllm, "attention")
    hit: set[str] = set()
    names = ("dtype", "qscheme", "is_dynamic", "symmetric")
    specs: list[Any] = [
        dict(zip(names, values, strict=True)) for values in product(*(FIELDS[name] for name in names))
    ]
    for spec in [*specs, None, [], [specs[0]], [specs[0], specs[0]], "fp8_e4m3"]:
        try:
            quark.QuarkKVCacheMethod.validate_kv_cache_config(spec)
            error: type[Exception] | None = None
        except Exception as raised:
            error = type(raised)
        ours = bool(index.accepted({"kv": spec}, "reorder"))
        crashed = error is not None and error is not NotImplementedError
        if ours is (error is None) and not crashed:
            continue
        assert not ours, spec
        does = "crashes" if crashed else "selects"
        named = [one.id for one in known.of({"kv": spec}, "reorder") if one.target_does == does]
        assert named, spec
        hit.update(named)
    assert hit == {one.id for one in known.all}


WEIGHT = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}


def block(**changes: Any) -> dict[str, Any]:
    layer = {"weight": WEIGHT, "input_tensors": WEIGHT, "output_tensors": None, "bias": None}
    return {
        "quant_method": "quark",
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "exclude": [],
        "layer_type_quant_config": {},
        "layer_quant_config": {},
        "global_quant_config": layer,
        **changes,
    }


@pytest.mark.parametrize(
    ("kind", "layer_type", "excluded"),
    [
        ("linear", ColumnParallelLinear, UnquantizedLinearMethod),
        ("experts", RoutedExperts, UnquantizedFusedMoEMethod),
        ("attention", Attention, None),
        ("head", ParallelLMHead, None),
        ("embedding", VocabParallelEmbedding, None),
    ],
)
def test_kinds(vllm: Target, kind: str, layer_type: type, excluded: type | None) -> None:
    """What vLLM builds for each type of layer, quantized and excluded, is what the kind says."""
    module = "model.layers.0.module"
    theirs = quark.QuarkConfig.from_config(block()).get_quant_method_target(module, layer_type)
    ours = Resolver(block(), vllm).resolve(module, kind)
    ignored = [one for one in Known(vllm, kind).all if one.target_does == "ignores"]
    assert bool(ignored) is (theirs[2] is None)
    if ignored and vllm.schemes.kinds[kind].global_config:
        assert isinstance(ours, Refusal)
    else:
        assert not isinstance(ours, Refusal)
    without = block(exclude=[module])
    theirs = quark.QuarkConfig.from_config(without).get_quant_method_target(module, layer_type)
    assert theirs == (None, None, excluded)
    plain = Resolver(without, vllm).resolve(module, kind)
    assert not isinstance(plain, Refusal)
    assert plain.excluded
    if excluded is not None:
        assert plain.choice.scheme is not None
        assert class_of(plain.choice.scheme) is excluded
