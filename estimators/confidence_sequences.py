"""Intervals that hold at every look, however often one looks and whenever one stops."""

from __future__ import annotations

import math
from functools import cache

from scipy.special import lambertw


def sequence_half_width(se: float, level: float, planned_half_width: float) -> float:
    """Bound a mean at all looks at once, in information time.

    With I = 1/se², P(|error| > se √((I r + 1)/(I r) · ln((I r + 1)/alpha²)) at some look) tends to
    at most alpha = 1 - level, for estimates whose error is like a Brownian motion in I: means of
    independent values, as more and more come in. It is asymptotic: it needs enough values for the
    sample variance and the normal law to hold from the first look on.

    r sets where the bound is tightest: at the information at which the half-width is the planned
    one. There I r = x with x = ln((1 + x)/alpha²), and half-width² = (1 + x)/I.

    Parameters
    ----------
    se : standard error now, > 0
    planned_half_width : where the run is meant to end, > 0, on the scale of `se`

    Source: normal mixture [R70]; its asymptotic form [WSAK24].
    """
    planned = (1 + tightest(1 - level)) / planned_half_width**2
    return se * sequence_bound(1 / se**2, level, planned)


def sequence_bound(information: float, level: float, planned_information: float) -> float:
    """Bound |z| at all looks at once, in information time; see `sequence_half_width`.

    √((I r + 1)/(I r) · ln((I r + 1)/alpha²)), with r so that it is least at the planned information.

    Parameters
    ----------
    information, planned_information : 1/se² now, and where the run is meant to end; only their
        ratio counts

    Source: normal mixture [R70]; its asymptotic form [WSAK24].
    """
    alpha = 1 - level
    x = tightest(alpha) * information / planned_information
    return math.sqrt((1 + 1 / x) * math.log((1 + x) / alpha**2))


@cache
def tightest(alpha: float) -> float:
    """Solve x = ln((1 + x)/alpha²), where (1 + 1/x) ln((1 + x)/alpha²) is least.

    With u = 1 + x: u e^(-u) = alpha²/e, so u = -W(-alpha²/e) on the lower branch of Lambert's W.
    """
    return float(-lambertw(-(alpha**2) / math.e, -1).real - 1)
