"""How languages are written: codes of languages, and which languages put no spaces between words.

sacreBLEU's default tokeniser, 13a, splits words at spaces. A whole Chinese sentence is then one word, and BLEU is 0 for a
translation that differs in one character.
"""

import re
from collections.abc import Iterable
from itertools import islice

# Per language the code of two letters (ISO 639-1), those of three (ISO 639-2 and 639-3), and its names in English and in
# itself. Only languages for which this module or translation/splitting.py has rules, or which headers of tables often name.
_LANGUAGES = """
am amh|ar ara arb arabic العربية|bg bul bulgarian български|bn ben|bo bod tib|bs bos|ca cat|cs ces cze czech čeština|da dan
danish dansk|de deu ger german deutsch|el ell gre greek ελληνικά|en eng english|es spa spanish español|et est ekk estonian
eesti|eu eus baq|fa fas persian فارسی|fi fin finnish suomi|fo fao|fr fra fre french français|gu guj|he heb hebrew עברית|hi hin
hindi|hr hrv croatian hrvatski|hu hun hungarian magyar|hy hye arm|id ind indonesian|is isl ice|it ita italian italiano|ja jpn
japanese 日本語|kk kaz|km khm|kn kan|ko kor korean 한국어|lb ltz|lo lao|lt lit lithuanian lietuvių|lv lav lvs latvian latviešu|
ml mal|mr mar|my mya bur|nb nob|nl nld dut dutch nederlands|nn nno|no nor norwegian norsk|pa pan|pl pol polish polski|pt por
portuguese português|ro ron romanian română|ru rus russian русский|sk slk slo slovak slovenčina|sl slv slovenian slovenščina|sr
srp serbian српски|sv swe swedish svenska|ta tam|te tel|th tha thai ไทย|tr tur turkish türkçe|uk ukr ukrainian українська|vi vie
vietnamese|zh zho chi cmn yue wuu chinese 中文
"""
CODE_OF = {name: names.split()[0] for names in _LANGUAGES.split("|") for name in names.split()}
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
    return CODE_OF.get(code, code)


def tokenizer_for(lines: Iterable[str]) -> str:
    """sacreBLEU's tokeniser for such text: 13a if it has spaces, zh if it is Chinese, else char (every character a word)."""
    text = "".join(islice(lines, LINES_FOR_SCRIPT))
    han, kana, others, letters = (len(kind.findall(text)) for kind in (_HAN, _KANA, _OTHER_UNSPACED, _LETTER))
    if 2 * (han + kana + others) <= letters or not letters:
        return "13a"
    return "zh" if han > 20 * (kana + others) else "char"
