"""How languages are written: what the code of one is, and what sets those apart that write no spaces between words.

sacreBLEU's usual tokeniser, 13a, takes what stands between spaces for a word. Of a Chinese sentence that is the whole
sentence, and BLEU is 0 for a translation with one other character.
"""

import re
from collections.abc import Iterable
from itertools import islice

# Codes of two letters (ISO 639-1) and those of three for the same language (ISO 639-2 and 639-3): of the languages whose rules
# are known here and in translation/splitting.py.
_SAME = """am amh, ar ara arb, bg bul, bn ben, bo bod tib, bs bos, ca cat, cs ces cze, da dan, de deu ger, el ell gre, en eng,
es spa, et est ekk, eu eus baq, fi fin, fo fao, fr fra fre, gu guj, hi hin, hr hrv, hu hun, hy hye arm, is isl ice, it ita,
ja jpn, kk kaz, km khm, kn kan, lb ltz, lo lao, lv lav lvs, ml mal, mr mar, my mya bur, nb nob, nl nld dut, nn nno, no nor,
pa pan, pl pol, pt por, ru rus, sk slk slo, sl slv, sr srp, ta tam, te tel, th tha, tr tur, uk ukr, zh zho chi cmn yue wuu"""
_TWO_LETTERS = {code: codes.split()[0] for codes in _SAME.split(",") for code in codes.split()}
UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo"}  # Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan
ENOUGH = 1_000  # lines, to tell a text's script

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
_OTHERS = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan; Burmese; Khmer
_LETTER = re.compile(r"[^\W\d_]")


def writes_spaces(language: str) -> bool:
    """Whether words and sentences stand apart in the language of this code, such as en or zh_Hans."""
    return two_letters(language) not in UNSPACED


def two_letters(language: str) -> str:
    """The language's code of two letters: de for deu, ger, DE and de_AT. Of one that is not known, the code without region."""
    code = re.split("[-_]", language.lower())[0]
    return _TWO_LETTERS.get(code, code)


def tokenizer_for(lines: Iterable[str]) -> str:
    """sacreBLEU's tokeniser for text like this: 13a where there are spaces, zh for Chinese, else char, a letter for a word."""
    text = "".join(islice(lines, ENOUGH))
    han, kana, others, letters = (len(kind.findall(text)) for kind in (_HAN, _KANA, _OTHERS, _LETTER))
    if 2 * (han + kana + others) <= letters or not letters:
        return "13a"
    return "zh" if han > 20 * (kana + others) else "char"
