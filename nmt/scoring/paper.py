"""The paper's own convention, for comparison with its 27.3: BLEU of tokenised text with compounds split.

Both sides are tokenised like Moses' tokenizer.perl and split at the hyphens of compounds, then scored like multi-bleu.perl:
words are separated by spaces, and nothing is smoothed. tensor2tensor's get_ende_bleu.sh does the same with a reference that
is already tokenised; some versions of it also replace the translation's quotation marks and dashes by plain ones, which may
be worth a point and is not done here. The number is higher than BLEU of the same text, and is never called BLEU here.
"""

import re
from dataclasses import replace

from nmt.scoring.metrics import Evaluation, Score, corpus_scores


def paper_scores(evaluation: Evaluation, language: str, lowercase: bool, confidence: bool) -> list[Score]:
    """The score of each system, in order. `language` is the code of the language translated into."""
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesTokenizer, __version__
    from sacremoses.corpus import NonbreakingPrefixes

    rules = language if language in NonbreakingPrefixes().available_langs else "en"  # as in Moses
    tokenizer = MosesTokenizer(rules)

    def prepare(line: str) -> str:
        # Escaping would rename words on both sides alike, which changes no score.
        return split_compounds(str(tokenizer.tokenize(line, return_str=True, escape=False)))

    systems = [(name, list(map(prepare, lines))) for name, lines in evaluation.systems]
    references = [(name, list(map(prepare, lines))) for name, lines in evaluation.references]
    words = Evaluation(systems, references)
    metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
    tokenization = f"tok:moses-{rules}+split|sacremoses:{__version__}"
    return [
        replace(score, metric="BLEU-tokenised-split", signature=score.signature.replace("tok:none", tokenization))
        for score in corpus_scores(words, metric, confidence)
    ]


def split_compounds(line: str) -> str:
    """ "a well-known fact" becomes "a well ##AT##-##AT## known fact"."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)
