"""How many tokens a GPU takes at once: tried out before training, for no formula knows every card and every model."""

import torch

from nmt.data.batching import Batch
from nmt.errors import is_out_of_memory
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.training.trainer import Trainer

# Pieces of the sentences tried: long ones, for real text. Two numbers, and neither a power of two as the rows are many, so
# that what is compiled here serves all shapes.
SOURCE, TARGET = 60, 68
FULL = 0.8  # share of the memory that may be used: real batches are less even than those tried here
LEAST = 1_024  # tokens tried first


def find_micro_batch(trainer: Trainer, most: int) -> int:
    """The most padded tokens a side, by doubling, of which forward and backward pass fit; `most` is as many as are of use.

    Leaves weights, moments and progress as they were. A size that proves too large after all is halved while training.
    Whatever is to be compiled is compiled here: a single row is tried too, for which PyTorch compiles once more.
    """
    _peak(trainer, 1)
    free, _ = torch.cuda.mem_get_info(trainer.device)
    later = 4 if trainer.ranks.count == 1 else 8  # bytes a parameter: a second gradient, sums over ranks
    room = FULL * (free + torch.cuda.memory_reserved(trainer.device)) - later * trainer.model.count_parameters()
    size = LEAST
    while size < most and _peak(trainer, 2 * size) < room:
        size *= 2
    trainer.optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    return min(size, most)


def _peak(trainer: Trainer, tokens: int) -> float:
    """Bytes at the height of one micro-batch's work; infinite where memory runs out."""
    rows = max(1, tokens // TARGET)
    torch.cuda.reset_peak_memory_stats(trainer.device)
    try:
        source = torch.full((rows, SOURCE), FIRST_PIECE, device=trainer.device)
        target_in, target_out = (torch.full((rows, TARGET), FIRST_PIECE, device=trainer.device) for _ in range(2))
        target_in[:, 0], target_out[:, -1] = BOS, EOS
        trainer.backward(Batch(source, target_in, target_out, rows * (SOURCE + TARGET)), rows * TARGET)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return float("inf")
    return torch.cuda.max_memory_allocated(trainer.device)
