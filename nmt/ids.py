"""Ids that are not pieces of text. The vocabulary, the batches, the model and the search share them."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
RESERVED = [f"<reserved{number}>" for number in range(8)]  # control symbols for later use; text never matches them
SYNTHETIC = 4  # the first reserved id, before a source that a machine wrote (Caswell et al. 2019)
FIRST_PIECE = 4 + len(RESERVED)  # lower ids never come from text, and search never emits them
