"""How far apart two ways of computing the same value may be, from the precision and the lengths of the sums on the way."""

from typing import Any

import torch


def rounding(dtype: torch.dtype, *sums: int) -> dict[str, Any]:
    """For assert_close: absolute and relative error of values about 1, after sums of so many terms, one upon another.

    Each addition rounds by up to half an epsilon, up or down: after n of them the errors amount to about sqrt(n) halves, not n
    (Higham and Mary, 2019). Both ways round, which makes the half a whole; the errors of sums upon sums add up.
    """
    error = torch.finfo(dtype).eps * sum(terms**0.5 for terms in sums)
    return {"atol": error, "rtol": error}
