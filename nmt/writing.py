"""Languages that write no spaces between words: what joins their sentences, and what BLEU counts in them.

sacreBLEU's usual tokeniser, 13a, takes what stands between spaces for a word. Of a Chinese sentence that is the whole
sentence, and BLEU is 0 for a translation with one other character.
"""

import re
from collections.abc import Iterable
from itertools import islice

# Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan, by their codes of two letters and of three.
UNSPACED = set("zh zho chi cmn yue wuu ja jpn th tha lo lao km khm my mya bur bo bod tib".split())  # noqa: SIM905
ENOUGH = 1_000  # lines, to tell a text's script

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
_OTHERS = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan; Burmese; Khmer
_LETTER = re.compile(r"[^\W\d_]")


def writes_spaces(language: str) -> bool:
    """Whether words and sentences stand apart in the language of this code, such as en or zh_Hans."""
    return re.split("[-_]", language.lower())[0] not in UNSPACED


def tokenizer_for(lines: Iterable[str]) -> str:
    """sacreBLEU's tokeniser for text like this: 13a where there are spaces, zh for Chinese, else char, a letter for a word."""
    text = "".join(islice(lines, ENOUGH))
    han, kana, others, letters = (len(kind.findall(text)) for kind in (_HAN, _KANA, _OTHERS, _LETTER))
    if 2 * (han + kana + others) <= letters or not letters:
        return "13a"
    return "zh" if han > 20 * (kana + others) else "char"
