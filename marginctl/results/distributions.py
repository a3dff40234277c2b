"""Quantiles and tails of the normal and Student's t distribution.

SciPy is imported by the first number that is asked for: with it a report of runs that compares
nothing would take 0.3 s longer.
"""


def normal_tail(z: float) -> float:
    """The probability that a standard normal number is below z."""
    from scipy.special import ndtr

    return float(ndtr(z))


def normal_quantile(p: float) -> float:
    """The number below which a standard normal one lies with probability p."""
    from scipy.special import ndtri

    return float(ndtri(p))


def student_tail(df: float, t: float) -> float:
    """The probability that a number of Student's t distribution is below t."""
    from scipy.special import stdtr

    return float(stdtr(df, t))


def student_quantile(df: float, p: float) -> float:
    """The number below which one of Student's t distribution lies with probability p."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))
