"""Logarithms and the tail of Student's distribution in integers: the same on every machine.

Logarithms are natural ones, in millionths. Inside, numbers have sixty binary places.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import isqrt

from eva_wire.values.ids import MILLION

_BITS = 60
_ONE = 1 << _BITS
_TERMS = 24
"""Number of terms of a series whose terms shrink by a factor of at least nine."""
_MOST_FREEDOM = 200
"""With more degrees of freedom the distribution is as good as the normal one."""
_HALVINGS = 3
"""An angle is halved so often before its series is summed."""
_REMEMBERED = 4_096
MOST_LOG_PPM = 40 * MILLION
"""The exponential of more is not asked for: 2 * 10^17."""


@lru_cache(maxsize=_REMEMBERED)
def log_ppm(value: int) -> int:
    """The natural logarithm of a positive integer, in millionths, rounded.

    The latest are remembered: gangs ask for those of their sizes in every round.
    """
    power = value.bit_length() - 1
    mantissa = (value << _BITS) >> power
    total = power * _ln_two() + _log_of_mantissa(mantissa)
    return _rounded(total * MILLION, _ONE)


@lru_cache(maxsize=_REMEMBERED)
def exp_of_ppm(log: int) -> int:
    """The exponential of a logarithm in millionths, as the nearest integer.

    More than `MOST_LOG_PPM` counts as that.
    """
    scaled = min(log, MOST_LOG_PPM) * _ONE // MILLION
    power, rest = divmod(scaled, _ln_two())
    if power < -_BITS:
        return 0
    total = term = _ONE
    for number in range(1, _TERMS):
        term = term * rest // (_ONE * number)
        total += term
    return _rounded(total << power, _ONE) if power >= 0 else _rounded(total, _ONE << -power)


def exceeds_ppm(distance: int, scale: int, freedom: int) -> int:
    """The probability that a variable of Student's distribution is above a value.

    Args:
        distance: The value less the centre, in millionths.
        scale: The square of the distribution's scale, in millionths; 0 for no spread at all.
        freedom: Degrees of freedom, at least 1.

    Returns:
        Millionths.
    """
    if scale <= 0:
        return MILLION if distance < 0 else 0
    inside = _within(abs(distance), scale, min(freedom, _MOST_FREEDOM))
    beyond = _rounded((_ONE - inside) * MILLION, 2 * _ONE)
    return beyond if distance >= 0 else MILLION - beyond


def _within(distance: int, scale: int, freedom: int) -> int:
    """How probable a smaller distance from the centre is; the finite sums of W. S. Gosset."""
    square, whole = distance * distance, distance * distance + freedom * scale * MILLION
    sine_squared = (square << 2 * _BITS) // whole
    sine = isqrt(sine_squared)
    cosine_squared = _ONE - (sine_squared >> _BITS)
    cosine = isqrt(cosine_squared << _BITS)
    odd = freedom % 2
    total, term = 0, cosine if odd else _ONE
    for number in range(1 + odd, freedom, 2):
        total += term
        term = term * number // (number + 1) * cosine_squared // _ONE
    if not odd:
        return min(_ONE, sine * total // _ONE)
    angle = _angle(sine, cosine)
    return min(_ONE, 2 * (angle + sine * total // _ONE) * _ONE // _pi())


def _angle(sine: int, cosine: int) -> int:
    """The angle between 0 and 90 degrees that has this sine and cosine."""
    if cosine <= sine:
        return _pi() // 2 - _angle(cosine, sine) if cosine < sine else _pi() // 4
    tangent = sine * _ONE // cosine
    for _ in range(_HALVINGS):
        tangent = tangent * _ONE // (_ONE + isqrt((_ONE << _BITS) + tangent * tangent))
    return _arc_tangent(tangent) << _HALVINGS


def _arc_tangent(tangent: int) -> int:
    """The angle of a tangent of at most a third."""
    square = tangent * tangent >> _BITS
    total, power = 0, tangent
    for number in range(_TERMS):
        total += (power if number % 2 == 0 else -power) // (2 * number + 1)
        power = power * square >> _BITS
    return total


@cache
def _pi() -> int:
    """Sixteen times the angle of a fifth, less four times that of 1/239."""
    return 16 * _arc_tangent(_ONE // 5) - 4 * _arc_tangent(_ONE // 239)


@cache
def _ln_two() -> int:
    return _log_of_mantissa(2 * _ONE)


def _log_of_mantissa(mantissa: int) -> int:
    """The logarithm of a number from 1 to 2."""
    ratio = ((mantissa - _ONE) << _BITS) // (mantissa + _ONE)
    square = ratio * ratio >> _BITS
    total, power = 0, ratio
    for number in range(_TERMS):
        total += power // (2 * number + 1)
        power = power * square >> _BITS
    return 2 * total


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
