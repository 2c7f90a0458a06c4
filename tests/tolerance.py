"""How far apart two computations of the same value may be, given the precision and the lengths of their sums."""

from typing import Any

import torch


def rounding(dtype: torch.dtype, *sums: int) -> dict[str, Any]:
    """Arguments of assert_close for values about 1, computed by sums of these lengths, each from the results of the one before.

    An addition rounds by up to half an epsilon, up or down, so that the error of n additions is about sqrt(n) halves (Higham
    and Mary, 2019). Both computations round, which makes the half a whole; the errors of successive sums add up.
    """
    error = torch.finfo(dtype).eps * sum(terms**0.5 for terms in sums)
    return {"atol": error, "rtol": error}
