"""Cases over numerics without a scale, for `cases.py`: NaN, infinities, many digits, all scales.

The type `number` is PostgreSQL's `numeric` there, and our form of it here.
"""

NUMBERS = [
    "0", "0.00", "1.50", "-2.5", "3", "10000", "0.0001", "NaN", "Infinity", "-Infinity",
    "123456789012345678901234567890.123456789", "-0.000000000000000000000000000001234",
    "999999999999999999.99999999999999999999", "-1000000000000000000", None,
]  # fmt: skip
_FEW = ["0", "1", "1.50", "-2", "7.000", "0.03125", "NaN", "Infinity", "-Infinity", "2e25"]
BINARY = ("+", "-", "*", "/", "%", "div", "=", "<", ">=", "<>")
UNARY = ("-", "abs", "sign", "round", "trunc", "ceil", "floor", "trim_scale", "sqrt", "ln", "log")
POWERS = tuple(f"{x} | {y}" for x in _FEW for y in ("0", "1.5", "-2", "3.0", "0.5", *_FEW[6:9]))
LOGARITHMS = tuple(
    f"{b} | {x}"
    for b in ("2", "10.0", "0.5", "1", *_FEW[6:9])
    for x in ("0", "3", "1e30", *_FEW[6:9])
)
EXPONENTS = ("0", "1", "-1.50", "12.3456789", "-70", "200", "6000", "-6000", *_FEW[6:9])
DIGITS = tuple(
    f"{x} | {n}"
    for x in ("1234.5678", "-2.5", "0.005", "1e30", "NaN", "Infinity", "99.995")
    for n in ("0", "2", "-2", "25", "-40")
)
CASTS = ("int2", "int4", "int8", "float4", "float8", "numeric(10,2)", "numeric(38,20)", "text")
TEXTS = (
    "1.50", " 7 ", "-0.00", "1e3", "1.5e-3", "abc", "", "nan", "-nan", "inf", "-Infinity", "1e131072",
    "1e-20", ".5", "5.", "1e400", "12345678901234567890123456789012345678901234567890.10", "+inf",
)  # fmt: skip
FLOATS = ("1.5", "0.1", "1e300", "NaN", "Infinity", "-0", "1e-300", "123456789.123456789")
AGGREGATED = (
    "{1.50,2.25,-0.01}", "{NULL}", "{}", "{1.5,1.50,2}", "{NaN,1}", "{Infinity,1}",
    "{Infinity,-Infinity}", "{1e30,-1e30,1.0}", "{0.00000000000000000000000001,1}", "{3,NULL}",
    "{12345678901234567890.123,-0.5}", "{0.000,0.0}", "{7.1,7.1,7.1}",
)  # fmt: skip
WITHOUT_TIES = tuple(each for each in AGGREGATED if "0.0}" not in each and "1.50," not in each)
DIVISORS = tuple(
    f"{a} | {b}"
    for a in ("0", "0.00", "12", "-1.50", "0.0036", "1e30", "NaN", "-Infinity")
    for b in ("0", "18", "0.027", "-4.5000", "123456789012345678901234567890", "Infinity")
)
