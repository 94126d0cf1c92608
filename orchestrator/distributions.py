"""Student's t, chi-square and the normal distribution: `scipy.special`, loaded when the first interval is asked for.

Its import takes a fifth of a second, and of the api's requests only tables, comparisons and fits need it.
"""


def t_below(degrees: float, value: float) -> float:
    """P(t ≤ value) for Student's t with so many degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(degrees, value))


def t_quantile(degrees: float, probability: float) -> float:
    """The value that Student's t is below with that probability."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def chi_square_quantile(degrees: float, probability: float) -> float:
    """The value that chi-square is below with that probability."""
    from scipy.special import chdtri

    return float(chdtri(degrees, 1 - probability))


def normal_quantile(probability: float) -> float:
    """The value that a standard normal is below with that probability."""
    from scipy.special import ndtri

    return float(ndtri(probability))
