"""The paper's own convention, so that its 27.3 is compared with its like: BLEU of tokenised text with compounds split.

Both sides are tokenised as by Moses' tokenizer.perl, their hyphenated words are taken apart, and what comes out is scored
as by multi-bleu.perl: words are what stands between spaces, and nothing is smoothed. So does tensor2tensor's
get_ende_bleu.sh, with a reference that came tokenised already; some versions of it also replace the quotation marks and
dashes of the translation by plain ones, which is not done here and may be worth a point. The number is higher than BLEU of
the same text, and is never called BLEU here.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from nmt.errors import UsageError
from nmt.scoring.metrics import Evaluation, Score, Text, corpus_scores

NAME = "BLEU-tokenised-split"


def check_installed() -> None:
    """Raises UsageError without the package that tokenises."""
    if find_spec("sacremoses") is None:
        raise UsageError("--metric paper: needs sacremoses; install it with `pip install -e '.[moses]'`")


def paper_scores(evaluation: Evaluation, language: str, lowercase: bool, confidence: bool) -> list[Score]:
    """The score of each system, in order. `language` is the code of what they translate into."""
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesTokenizer, __version__
    from sacremoses.corpus import NonbreakingPrefixes

    rules = language if language in NonbreakingPrefixes().available_langs else "en"  # as Moses does
    tokenizer = MosesTokenizer(rules)

    def prepared(texts: Sequence[Text]) -> list[Text]:
        return [(name, [split_compounds(tokenized(line)) for line in lines]) for name, lines in texts]

    def tokenized(line: str) -> str:
        # Escaped, each word would have another name on both sides: the score is the same.
        return str(tokenizer.tokenize(line, return_str=True, escape=False))

    words = Evaluation(prepared(evaluation.systems), prepared(evaluation.references))
    metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
    tokenization = f"tok:moses-{rules}+split|sacremoses:{__version__}"
    return [
        replace(score, metric=NAME, signature=score.signature.replace("tok:none", tokenization))
        for score in corpus_scores(words, metric, confidence)
    ]


def split_compounds(line: str) -> str:
    """The line with its compounds taken apart: "a well ##AT##-##AT## known fact"."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)
