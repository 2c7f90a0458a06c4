"""Find how many tokens a GPU can process at once, by trying sizes before training: no formula covers every GPU and model."""

import torch

from nmt.data.batching import Batch
from nmt.errors import is_out_of_memory
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.training.trainer import Trainer

# Pieces of the sentences tried, long ones for real text. The two differ, and neither is a power of two as the number of rows
# is, so that what PyTorch compiles here serves all shapes.
SOURCE_LENGTH, TARGET_LENGTH = 60, 68
USABLE_MEMORY = 0.8  # a share that leaves room for real batches, which are less even than those tried
MIN_TOKENS = 1_024


def find_micro_batch(trainer: Trainer, limit: int) -> int:
    """The most padded tokens a side whose forward and backward pass fit in memory, by doubling up to `limit`.

    Weights, moments and progress stay as they were. If the size proves too large, training halves it. Everything that is
    to be compiled is compiled here: also a single row, for which PyTorch compiles once more.
    """
    _peak_memory(trainer, 1)
    free, _ = torch.cuda.mem_get_info(trainer.device)
    later = 4 if trainer.ranks.count == 1 else 8  # bytes a parameter: a second gradient, and the sums over ranks
    reserved = torch.cuda.memory_reserved(trainer.device)
    budget = USABLE_MEMORY * (free + reserved) - later * trainer.model.count_parameters()
    size = MIN_TOKENS
    while size < limit and _peak_memory(trainer, 2 * size) < budget:
        size *= 2
    torch.cuda.empty_cache()
    return min(size, limit)


def _peak_memory(trainer: Trainer, tokens: int) -> float:
    """The peak bytes allocated while one micro-batch is computed; infinite if memory runs out."""
    rows = max(1, tokens // TARGET_LENGTH)
    torch.cuda.reset_peak_memory_stats(trainer.device)
    try:
        source = torch.full((rows, SOURCE_LENGTH), FIRST_PIECE, device=trainer.device)
        target_in, target_out = (torch.full((rows, TARGET_LENGTH), FIRST_PIECE, device=trainer.device) for _ in range(2))
        target_in[:, 0], target_out[:, -1] = BOS, EOS
        batch = Batch(source, target_in, target_out, rows * (SOURCE_LENGTH + TARGET_LENGTH))
        trainer.backward(batch, rows * TARGET_LENGTH)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return float("inf")
    return torch.cuda.max_memory_allocated(trainer.device)
