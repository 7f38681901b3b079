"""The instructions of linear programs, in groups of which each has a file.

instruction      a, b, c, d
LOAD             word, mask word, bit (-1: never NULL), width
CONSTANT         place in the constants
GIVEN            place in the given values, which are evaluated elsewhere
comparisons, arithmetic, logic: the registers of the operands
RANGE            register, place of the least value, of the greatest, error
ROUND            register, place of the unit, mode of `wide.rounded`
SCALE            register, place of a power of ten; a product that is too large is the greatest
SCALED_SUM       registers, place of a power of ten for the first, error
DIVIDE           registers, place of (scales packed, overflow's error), error of a zero divisor
WHOLE            registers, error of a zero divisor, 1 for the remainder
FLOAT            registers, operation, place of the errors (overflow, underflow, zero divisor)
FIELD            register of a time, field, 1 for a date, error of an infinite time or 0
TRUNCATE         register of a timestamp, field, error of a result before all timestamps
BIN              register of a timestamp, place of (width, origin), of the errors (distance, result)
"""

BLOCK = 512  # rows

# vm.py
LOAD, CONSTANT, GIVEN, FILTER, CHECK = range(5)
# logic.py
(
    EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, DISTINCT, NOT, AND, OR, IS_NULL, IS_NOT_NULL, SELECT,
    COALESCE,
) = range(5, 17)  # fmt: skip
# numbers.py
ADD, SUBTRACT, MULTIPLY, RANGE, ROUND, HIGH_PART, LOW_PART = range(17, 24)
# numerics.py
SCALE, SCALED_SUM, DIVIDE, NULL_IF_ZERO, WHOLE, FLOAT, TO_FLOAT = range(24, 31)
# forms.py
(
    ERROR_OF, FLOAT_ORDER, FLOAT_KEY, TEXT_ORDER, HIGH, COMPLEMENT, UNSIGNED_LOW, NULL_RANK, FIELD,
    TRUNCATE, BIN,
) = range(31, 42)  # fmt: skip
