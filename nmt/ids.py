"""Ids that are no pieces of text: known to the vocabulary, the batches, the model and the search alike."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
RESERVED = [f"<reserved{number}>" for number in range(8)]  # control symbols for later use; text never matches them
FIRST_PIECE = 4 + len(RESERVED)  # ids below it never come from text and are never emitted
