"""Python's `re.match` on one name, in time linear in the name whatever the pattern.

A pattern of an untrusted config can make a backtracking matcher run for years. Here Python's own parser
reads the pattern, a nondeterministic automaton is built from it, and its state sets are remembered as they
are met, so each character of a name costs one dictionary step once its state is known. Only whether a prefix
of the name matches is answered, so greedy and lazy repeats are the same.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MAX_PATTERN = 500
MAX_STATES = 500
MAX_REMEMBERED = 20_000

_parser: Any = importlib.import_module("re._parser")
_Test = Callable[[str], bool]
_Edge = tuple[_Test, int]


class PatternError(ValueError):
    """A pattern that is not evaluated; the text says why."""


def _category(expression: str) -> _Test:
    compiled = re.compile(expression)
    return lambda char: compiled.match(char) is not None


_CATEGORIES: dict[str, _Test] = {
    "CATEGORY_DIGIT": _category(r"\d"),
    "CATEGORY_NOT_DIGIT": _category(r"\D"),
    "CATEGORY_SPACE": _category(r"\s"),
    "CATEGORY_NOT_SPACE": _category(r"\S"),
    "CATEGORY_WORD": _category(r"\w"),
    "CATEGORY_NOT_WORD": _category(r"\W"),
}
_ANCHORS = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING"})
_DESCRIPTIONS = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ASSERT": "a look-around that is not at its start",
    "ASSERT_NOT": "a look-around that is not at its start",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
    "AT": "a word boundary",
}


def _refuse(op: Any) -> PatternError:
    return PatternError(f"it uses {_DESCRIPTIONS.get(str(op), str(op).lower())}, which is not evaluated")


class _Automaton:
    """One regular expression without look-around, as an automaton whose final state is 0."""

    def __init__(self, items: Any) -> None:
        self._empty: list[list[tuple[str | None, int]]] = [[]]
        self._edges: list[list[_Edge]] = [[]]
        self._start = self._sequence(items, 0)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def _state(self) -> int:
        if len(self._edges) >= MAX_STATES:
            raise PatternError(f"it needs more than {MAX_STATES} states")
        self._empty.append([])
        self._edges.append([])
        return len(self._edges) - 1

    def _sequence(self, items: Any, after: int) -> int:
        for op, argument in reversed(list(items)):
            build = _BUILDERS.get(str(op))
            if build is None:
                raise _refuse(op)
            after = build(self, op, argument, after)
        return after

    def _atom(self, test: _Test, after: int) -> int:
        state = self._state()
        self._edges[state].append((test, after))
        return state

    def _branch(self, _op: Any, argument: Any, after: int) -> int:
        state = self._state()
        self._empty[state].extend((None, self._sequence(option, after)) for option in argument[1])
        return state

    def _group(self, _op: Any, argument: Any, after: int) -> int:
        _, added, removed, items = argument
        if added or removed:
            raise PatternError("it uses inline flags, which are not evaluated")
        return self._sequence(items, after)

    def _anchor(self, op: Any, argument: Any, after: int) -> int:
        if str(argument) not in _ANCHORS:
            raise _refuse(op)
        state = self._state()
        self._empty[state].append((str(argument), after))
        return state

    def _repeat(self, _op: Any, argument: Any, after: int) -> int:
        low, high, items = argument
        if high is _parser.MAXREPEAT:
            loop = self._state()
            self._empty[loop] = [(None, after), (None, self._sequence(items, loop))]
            after = loop
        else:
            if high * max(1, len(items)) > MAX_STATES:
                raise PatternError(f"it needs more than {MAX_STATES} states")
            end = after
            for _ in range(high - low):
                option = self._state()
                self._empty[option] = [(None, end), (None, self._sequence(items, after))]
                after = option
        for _ in range(min(low, MAX_STATES + 1)):
            after = self._sequence(items, after)
        return after

    def _closure(self, states: frozenset[int], anchors: frozenset[str]) -> frozenset[int]:
        seen = set(states)
        stack = list(states)
        while stack:
            for anchor, target in self._empty[stack.pop()]:
                if target not in seen and (anchor is None or anchor in anchors):
                    seen.add(target)
                    stack.append(target)
        return frozenset(seen)

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        key = (states, char)
        known = self._steps.get(key)
        if known is None:
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            moved = frozenset(t for state in states for test, t in self._edges[state] if test(char))
            known = self._steps[key] = self._closure(moved, frozenset())
        return known

    def after(self, text: str, states: frozenset[int] | None = None) -> frozenset[int]:
        """The states that `text` leads to from `states` (None: a name's begin), {0} once it matched.

        It is not the end of the name.
        """
        if states is None:
            begin = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING"})
            states = self._closure(frozenset({self._start}), begin)
        for char in text:
            if 0 in states:
                return frozenset({0})
            states = self._step(states, char)
        return frozenset({0}) if 0 in states else states

    def match(self, name: str) -> bool:
        """Whether some prefix of `name` is in the language."""
        begin = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING"})
        states = self._closure(frozenset({self._start}), begin)
        last = len(name)
        for position, char in enumerate(name):
            at = begin if position == 0 else frozenset()
            if position == last - 1 and char == "\n":
                at |= {"AT_END"}
            if at:
                states = self._closure(states, at)
            if 0 in states:
                return True
            states = self._step(states, char)
            if not states:
                return False
        ends = frozenset({"AT_END", "AT_END_STRING"}) | (begin if last == 0 else frozenset())
        return 0 in self._closure(states, ends)


def _literal(automaton: _Automaton, _op: Any, argument: Any, after: int) -> int:
    return automaton._atom(chr(argument).__eq__, after)


def _not_literal(automaton: _Automaton, _op: Any, argument: Any, after: int) -> int:
    return automaton._atom(chr(argument).__ne__, after)


def _any(automaton: _Automaton, _op: Any, _argument: Any, after: int) -> int:
    return automaton._atom("\n".__ne__, after)


def _in(automaton: _Automaton, _op: Any, argument: Any, after: int) -> int:
    tests: list[_Test] = []
    negate = False
    for kind, value in argument:
        negate |= str(kind) == "NEGATE"
        tests.extend(_CLASS_ITEMS[str(kind)](value))
    return automaton._atom(lambda char: any(test(char) for test in tests) is not negate, after)


def _range(value: Any) -> list[_Test]:
    low, high = value
    return [lambda char: low <= ord(char) <= high]


_CLASS_ITEMS: dict[str, Callable[[Any], list[_Test]]] = {
    "NEGATE": lambda _: [],
    "LITERAL": lambda value: [chr(value).__eq__],
    "RANGE": _range,
    "CATEGORY": lambda value: [_CATEGORIES[str(value)]],
}
_BUILDERS: dict[str, Callable[[_Automaton, Any, Any, int], int]] = {
    "LITERAL": _literal,
    "NOT_LITERAL": _not_literal,
    "ANY": _any,
    "IN": _in,
    "BRANCH": _Automaton._branch,
    "SUBPATTERN": _Automaton._group,
    "MAX_REPEAT": _Automaton._repeat,
    "MIN_REPEAT": _Automaton._repeat,
    "AT": _Automaton._anchor,
}
_LOOKS = {"ASSERT": True, "ASSERT_NOT": False}


class Expression:
    """A pattern that `match`es as `re.match(pattern, name)` does.

    Look-ahead at the very start is evaluated. Back-references, other look-around, word boundaries, flags,
    atomic groups and possessive repeats are not.
    """

    def __init__(self, pattern: str) -> None:
        """Build the automaton.

        Raises:
            PatternError: Python refuses the pattern, it is too large, or it uses what is not evaluated.
        """
        if len(pattern) > MAX_PATTERN:
            raise PatternError(f"it is longer than {MAX_PATTERN} characters")
        try:
            self._build(_parser.parse(pattern))
        except (re.error, OverflowError) as error:
            raise PatternError(f"Python cannot compile it: {error}") from error
        except RecursionError as error:
            raise PatternError("it is nested too deeply") from error

    def _build(self, parsed: Any) -> None:
        if parsed.state.flags & ~re.UNICODE:
            raise PatternError("it uses inline flags, which are not evaluated")
        items = list(parsed)
        at = 0
        while at < len(items) and str(items[at][1]) in {"AT_BEGINNING", "AT_BEGINNING_STRING"}:
            at += 1
        self._conditions: list[tuple[bool, _Automaton]] = []
        while at < len(items) and str(items[at][0]) in _LOOKS:
            op, (direction, look) = items[at]
            if direction < 0:
                raise _refuse(op)
            self._conditions.append((_LOOKS[str(op)], _Automaton(look)))
            at += 1
        self._rest = _Automaton(items[at:])

    def match(self, name: str) -> bool:
        """Whether the pattern matches at the start of `name`."""
        return self._rest.match(name) and all(a.match(name) is wanted for wanted, a in self._conditions)

    def indifferent(self, heads: Iterable[str], middles: Sequence[str]) -> bool:
        """Whether it makes no difference to `match` which of `middles` follows on each of `heads`.

        The names do not end there, and hold no line break.
        """
        return all(
            len({automaton.after(middle, states) for middle in middles}) == 1
            for automaton in (self._rest, *(a for _, a in self._conditions))
            for states in {automaton.after(head) for head in heads}
        )
