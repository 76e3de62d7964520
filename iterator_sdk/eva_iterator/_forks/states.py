"""The weighted mean of nested states: dicts, lists and tuples of arrays, tensors and numbers."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from typing import Any

LARGEST = 1e290
"""Weights beyond this are taken for diverged; times the steps they might leave a float's range."""


class Unfit(ValueError):
    """A state that cannot be averaged with the others; the message says why."""


class Mean:
    """Sums states, each times its steps, and divides by the steps at the end.

    Floating-point arrays, tensors and numbers are averaged, in double precision. Everything else,
    such as integer counters, is taken from the first state. Whole numbers whose sum is below 2**53
    are averaged exactly: the result is the quotient of the sums, rounded once.
    """

    def __init__(self, first: Any, steps: int) -> None:
        """Starts with one state.

        Args:
            first: State that fixes the form of the others, and gives the values that are not
                averaged.
            steps: Its weight, at least 1.

        Raises:
            Unfit: The state has something that is neither averaged nor copied.
        """
        self._first = first
        self._steps = steps
        self._sums = [_wide(leaf) * steps for _, leaf in averaged(first)]

    def add(self, state: Any, steps: int) -> None:
        """Adds one more state.

        Args:
            state: Of the form of the first one.
            steps: Its weight, at least 1.

        Raises:
            Unfit: The state has another form.
        """
        check(self._first, state)
        for index, (_, leaf) in enumerate(averaged(state)):
            self._sums[index] = self._sums[index] + _wide(leaf) * steps
        self._steps += steps

    def result(self) -> Any:
        """The mean, in the types of the first state; that one remains as it is."""
        means = iter([total / self._steps for total in self._sums])
        return _rebuilt(self._first, means)


def mean(states: Sequence[Any], steps: Sequence[int]) -> Any:
    """The mean of states of one form, weighted by steps.

    Args:
        states: Nested dicts, lists and tuples of numpy arrays, torch tensors and numbers.
        steps: The weight of each.

    Raises:
        ValueError: There are no states, or not as many as steps, or a weight below 1.
        Unfit: States differ in form, or have something that is neither averaged nor copied.
    """
    if not states or len(states) != len(steps) or min(steps) < 1:
        raise ValueError("mean needs states, and for each its steps, at least 1")
    first = max(range(len(states)), key=lambda index: (steps[index], -index))
    total = Mean(states[first], steps[first])
    for index, state in enumerate(states):
        if index != first:
            total.add(state, steps[index])
    return total.result()


def averaged(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The averaged values of a state, each with its place, always in one order.

    Raises:
        Unfit: Something is neither averaged nor copied.
    """
    if isinstance(state, dict):
        for key in state:
            yield from averaged(state[key], f"{path}.{key}" if path else str(key))
    elif isinstance(state, (list, tuple)):
        for index, item in enumerate(state):
            yield from averaged(item, f"{path}[{index}]")
    elif _is_averaged(state, path):
        yield path, state


def check(reference: Any, state: Any, path: str = "") -> None:
    """Makes sure that a state has the form of another.

    The walk goes along the reference, so that a hostile state costs no more than a good one.

    Args:
        reference: A trusted state.
        state: Any.
        path: The place of both in a larger state.

    Raises:
        Unfit: The state has another form.
    """
    if type(reference) is not type(state):
        raise Unfit(f"{path or 'state'} is a {type(state).__name__}, not a {_name(reference)}")
    if isinstance(reference, dict):
        if list(reference) != list(state):
            raise Unfit(f"{path or 'state'} has other keys")
        for key in reference:
            check(reference[key], state[key], f"{path}.{key}" if path else str(key))
    elif isinstance(reference, (list, tuple)):
        if len(reference) != len(state):
            raise Unfit(f"{path or 'state'} has {len(state)} entries, not {len(reference)}")
        for index, item in enumerate(reference):
            check(item, state[index], f"{path}[{index}]")
    else:
        _check_leaf(reference, state, path)


def check_range(state: Any) -> None:
    """Makes sure that all that is averaged is finite and not absurdly large.

    Raises:
        Unfit: Something is not.
    """
    for path, leaf in averaged(state):
        if isinstance(leaf, float):
            fits = abs(leaf) <= LARGEST
        else:
            magnitude = abs(_wide(leaf))
            # A comparison with NaN is false, so this finds it too.
            fits = bool((magnitude <= LARGEST).all())
        if not fits:
            raise Unfit(f"{path} is not finite")


def _check_leaf(reference: Any, state: Any, path: str) -> None:
    for what in ("shape", "dtype", "layout"):
        wanted = getattr(reference, what, None)
        actual = getattr(state, what, None)
        if wanted is not None and wanted != actual:
            if what == "shape":
                wanted, actual = tuple(wanted), tuple(actual or ())
            raise Unfit(f"{path or 'state'} has {what} {actual}, not {wanted}")


def _name(value: Any) -> str:
    return type(value).__name__


def _is_averaged(leaf: Any, path: str) -> bool:
    if isinstance(leaf, float):
        return True
    if _is_tensor(leaf):
        if str(leaf.layout) != "torch.strided" or leaf.is_quantized:
            raise Unfit(f"{path} is a tensor that is sparse or quantised")
        return bool(leaf.is_floating_point() or leaf.is_complex())
    kind = getattr(getattr(leaf, "dtype", None), "kind", None)
    if kind is None:
        if leaf is None or isinstance(leaf, (bool, int, str, bytes, complex)):
            return False
        raise Unfit(f"{path} is a {_name(leaf)}")
    if kind not in "fciubUSMm":
        raise Unfit(f"{path} has dtype {leaf.dtype}")
    return kind in "fc"


def _is_tensor(leaf: Any) -> bool:
    # A program with a tensor has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def _wide(leaf: Any) -> Any:
    """A copy in double precision, or more where the leaf has more."""
    if isinstance(leaf, float):
        return float(leaf)
    if _is_tensor(leaf):
        torch = sys.modules["torch"]
        dtype = torch.complex128 if leaf.is_complex() else torch.float64
        return leaf.detach().to("cpu", dtype)
    import numpy

    return leaf.astype(numpy.promote_types(leaf.dtype, numpy.float64))


def _narrowed(value: Any, leaf: Any) -> Any:
    if _is_tensor(leaf):
        return value.to(leaf.dtype)
    if not hasattr(leaf, "dtype"):
        return value
    import numpy

    if isinstance(leaf, numpy.ndarray):
        return numpy.asarray(value).astype(leaf.dtype).reshape(leaf.shape)
    return leaf.dtype.type(value)


def _rebuilt(state: Any, means: Iterator[Any]) -> Any:
    if isinstance(state, dict):
        # Copied, since torch's state dicts have attributes of their own.
        rebuilt = copy.copy(state)
        for key in state:
            rebuilt[key] = _rebuilt(state[key], means)
        return rebuilt
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*[_rebuilt(item, means) for item in state])
    if isinstance(state, (list, tuple)):
        return type(state)([_rebuilt(item, means) for item in state])
    return _narrowed(next(means), state) if _is_averaged(state, "") else state
