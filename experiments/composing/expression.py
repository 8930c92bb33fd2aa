"""Whole numbers given as arithmetic, as ``4*depth`` or ``global_batch/(width*micro_batch_size)``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from bitpipe.errors import InputError

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
}


def evaluate(key: str, value: object, names: Mapping[str, int]) -> Fraction:
    """The exact value of a number or of an expression over ``names``.

    Raises:
        InputError: not a number, an unknown name, a division by zero.
    """
    allowed = f"a whole number, or + - * / // over {', '.join(names) or 'numbers'}"
    if isinstance(value, bool) or value is None:
        raise InputError(key, value, allowed)
    try:
        return _walk(ast.parse(str(value), mode="eval").body, names)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError) as error:
        raise InputError(key, value, allowed) from error


def whole(key: str, value: object, names: Mapping[str, int], least: int = 1) -> int:
    """The same, required to be whole and at least ``least``.

    Raises:
        InputError: it is not.
    """
    exact = evaluate(key, value, names)
    if exact.denominator != 1 or exact < least:
        shown = value if str(value) == str(exact) else f"{value} (= {float(exact):g})"
        raise InputError(key, shown, f"a whole number from {least}")
    return int(exact)


def _walk(node: ast.expr, names: Mapping[str, int]) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(number)
        case ast.Name(id=name):
            return Fraction(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_walk(left, names), _walk(right, names))
    raise ValueError(ast.dump(node))
