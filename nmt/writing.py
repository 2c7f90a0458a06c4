"""How languages are written: codes of languages, and which languages put no spaces between words.

sacreBLEU's default tokeniser, 13a, splits words at spaces. A whole Chinese sentence is then one word, and BLEU is 0 for a
translation that differs in one character.
"""

import re
from collections.abc import Iterable
from itertools import islice

# Per language the code of two letters (ISO 639-1), then those of three (ISO 639-2 and 639-3). Only languages for which this
# module or translation/splitting.py has rules.
_CODES = """am amh, ar ara arb, bg bul, bn ben, bo bod tib, bs bos, ca cat, cs ces cze, da dan, de deu ger, el ell gre, en eng,
es spa, et est ekk, eu eus baq, fi fin, fo fao, fr fra fre, gu guj, hi hin, hr hrv, hu hun, hy hye arm, is isl ice, it ita,
ja jpn, kk kaz, km khm, kn kan, lb ltz, lo lao, lv lav lvs, ml mal, mr mar, my mya bur, nb nob, nl nld dut, nn nno, no nor,
pa pan, pl pol, pt por, ru rus, sk slk slo, sl slv, sr srp, ta tam, te tel, th tha, tr tur, uk ukr, zh zho chi cmn yue wuu"""
_TWO_LETTERS = {code: codes.split()[0] for codes in _CODES.split(",") for code in codes.split()}
UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo"}  # Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan
LINES_FOR_SCRIPT = 1_000  # enough to identify the script of a text

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
_OTHER_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan; Burmese; Khmer
_LETTER = re.compile(r"[^\W\d_]")


def writes_spaces(language: str) -> bool:
    """Whether the language with this code, such as en or zh_Hans, puts spaces between words and sentences."""
    return two_letters(language) not in UNSPACED


def two_letters(language: str) -> str:
    """The two-letter code: de for deu, ger, DE and de_AT. An unknown code only loses its region."""
    code = re.split("[-_]", language.lower())[0]
    return _TWO_LETTERS.get(code, code)


def tokenizer_for(lines: Iterable[str]) -> str:
    """sacreBLEU's tokeniser for such text: 13a if it has spaces, zh if it is Chinese, else char (every character a word)."""
    text = "".join(islice(lines, LINES_FOR_SCRIPT))
    han, kana, others, letters = (len(kind.findall(text)) for kind in (_HAN, _KANA, _OTHER_UNSPACED, _LETTER))
    if 2 * (han + kana + others) <= letters or not letters:
        return "13a"
    return "zh" if han > 20 * (kana + others) else "char"
