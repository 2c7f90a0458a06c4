#!/usr/bin/env python3
"""Write the demonstration corpus: English-German sentence pairs from the words in lexicon.txt and the grammar here.

`python3 data/demo/generate.py` rewrites the files beside it, byte for byte the same each time. A Clause says what is meant;
english() and german() spell it out, each in its own word order; the patterns join clauses into sentences. README.md explains
how every English sentence has only one German sentence.

This is one program that needs only Python and this folder. Like a grammar, it goes from words and noun phrases to clauses,
sentences and the corpus. All functions draw from one random generator, in an order that the committed text depends on.
"""

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[str, str]  # English, German
HERE = Path(__file__).resolve().parent
RNG = random.Random(2017)
TRAIN, HELD_OUT = 20_000, 500
MAX_WORDS = 14  # on either side
MIN_OCCURRENCES = 8  # in the whole corpus, of every word form in a held-out sentence
NOM, ACC, DAT = 0, 1, 2
NOTHING = ("", "")

# Endings by gender and case; p is the plural of all genders.
STRONG = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em"), "p": ("e", "e", "en")}
THE = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem"), "p": ("die", "die", "den")}
POSSESSIVES = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
LIKE_EIN = {"a": "ein", "no": "kein"} | POSSESSIVES
LIKE_DIESER = {"this": "dies", "which": "welch", "many": "viel", "how many": "wie viel"}
NUMBERS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs", "ten": "zehn"}
UNINFLECTED = {"": ""} | NUMBERS
REFLEXIVE = ("mich", "dich", "sich", "uns", "sich")
CONTRACTIONS = {"in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur",
                "von dem": "vom"}  # fmt: skip
POSITIONS = [("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter")]
MEANS = [("by train", "mit dem Zug"), ("by car", "mit dem Auto"), ("by ship", "mit dem Schiff")]
YEARS = [str(year) for year in range(1961, 2020, 4)]
MODALS = {"can": "können", "must": "müssen", "should": "sollen", "want to": "wollen", "would like to": "möchten",
          "be allowed to": "dürfen"}  # fmt: skip
IRREGULAR = {infinitive: forms.split() for infinitive, forms in {
    "sein": "bin bist ist sind sind", "haben": "habe hast hat haben haben", "werden": "werde wirst wird werden werden",
    "können": "kann kannst kann können können", "müssen": "muss musst muss müssen müssen",
    "sollen": "sollte solltest sollte sollten sollten", "wollen": "will willst will wollen wollen",
    "möchten": "möchte möchtest möchte möchten möchten", "dürfen": "darf darfst darf dürfen dürfen",
    "wissen": "weiß weißt weiß wissen wissen", "mögen": "mag magst mag mögen mögen"}.items()}  # fmt: skip
DOUBLING = ("swim", "run", "put", "get", "sit", "forget", "begin", "travel")
# How often each tense is drawn; English past and perfect are both a German perfect.
TENSES = {"perfect": 8, "past": 5, "progressive": 4, "present": 3, "future": 3} | dict.fromkeys(MODALS, 1)
ACTIONS = ("acc", "dat", "both", "to", "prep", "dir", "city", "loc", "live", "put", "lie", "intr")


@dataclass(frozen=True)
class Noun:
    en: tuple[str, str]  # singular, plural
    de: tuple[str, str]
    gender: str
    weak: bool
    kinds: tuple[str, ...]
    prepositions: tuple[str, ...]


@dataclass(frozen=True)
class Adjective:
    en: str
    de: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    en: tuple[str, str, str]  # base, past, participle
    particle: str
    object_first: bool  # the object stands before the English particle
    prefix: str
    infinitive: str  # without the prefix
    stem: str  # of du and er, where it changes
    participle: str
    auxiliary: str
    reflexive: bool
    preposition: str
    case: int  # after the preposition
    state: bool
    progressive: bool
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


@dataclass(frozen=True)
class Phrase:
    """A noun phrase in all the forms that a clause may need."""

    en: str
    en_object: str
    de: tuple[str, ...]  # nominative, accusative, dative
    person: int  # 0 ich, 1 du, 2 er, 3 wir, 4 sie (they)
    owner: str = ""  # the English possessive that refers back to it
    pronoun: bool = False
    definite: bool = True
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    verb: Verb
    tense: str
    negated: bool = False
    accusative: Phrase | None = None
    dative: Phrase | None = None
    oblique: Phrase | None = None  # the object behind the preposition of the verb
    extra: Pair = NOTHING  # company and place, or what follows "to be"
    time: Pair = NOTHING
    adverb: Pair = NOTHING


# --- Reading the lexicon ------------------------------------------------------------------------------------


def entries(section: str) -> list[tuple[str, str]]:
    """(kinds, entry) for each entry of one section of the lexicon."""
    text = (HERE / "lexicon.txt").read_text(encoding="utf-8").replace("\n    ", " ")
    body = text.partition(f"\n[{section}]\n")[2].partition("\n\n")[0]
    rows = [line.partition(": ") for line in body.splitlines() if not line.startswith("#")]
    return [(kinds, entry.strip()) for kinds, _, line in rows for entry in line.split(";")]


def halves(text: str, mark: str = "=") -> Pair:
    left, _, right = text.partition(mark)
    return left, right


def parse_noun(kinds: str, text: str) -> Noun:
    english, german, gender, plural, *prepositions = text.split()
    en, en_plural = halves(english, "/")
    en_plural = en_plural or en + ("es" if en.endswith(("s", "x", "ch", "sh")) else "s")
    weak, gender = gender == "w", gender.replace("w", "m")
    return Noun((en, en_plural), (german, plural.strip("-")), gender, weak, tuple(kinds.split()), tuple(prepositions))


def parse_verb(head: str, text: str) -> Verb:
    english, german = halves(text)
    word, _, particle = english.lstrip("*!").partition(" ")
    base, past, participle = word.split("/") if "/" in word else (word, regular_past(word), regular_past(word))
    tokens = german.split()
    forms = [token for token in tokens if token not in ("ist", "sich") and "+" not in token]
    prefix, _, infinitive = forms[0].rpartition("|")
    preposition, case = halves(next((token for token in tokens if "+" in token), ""), "+")
    before, objects = halves(head, " >")
    frame, *subjects = before.split()
    return Verb(
        (base, past, participle), particle.removeprefix("_ "), "_" in particle,
        prefix, infinitive, forms[1] if len(forms) == 3 else "", forms[-1], "sein" if "ist" in tokens else "haben",
        "sich" in tokens, preposition, DAT if case == "dat" else ACC, english[0] == "*", english[0] not in "*!",
        frame, tuple(subjects), tuple(objects.split()),
    )  # fmt: skip


def parse_pronoun(person: int, text: str) -> Phrase:
    en, en_object, owner, *german = text.split()
    return Phrase(en, en_object, tuple(german), person, owner, pronoun=True)


def regular_past(word: str) -> str:
    return word + "d" if word.endswith("e") else re.sub("([^aeiou])y$", r"\1i", word) + "ed"


def third_person(word: str) -> str:
    if word in ("have", "go"):
        return {"have": "has", "go": "goes"}[word]
    return re.sub("([^aeiou])y$", r"\1ie", word) + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def ing(word: str) -> str:
    if word == "lie":
        return "lying"
    return (word + word[-1] if word in DOUBLING else re.sub("([^e])e$", r"\1", word)) + "ing"


NOUNS = [parse_noun(kinds, text) for kinds, text in entries("nouns")]
VERBS = [parse_verb(head, text) for head, text in entries("verbs")]
ADJECTIVES = [Adjective(*halves(text), tuple(kinds.split())) for kinds, text in entries("adjectives")]
PRONOUNS = [parse_pronoun(p, text) for p, (_, text) in zip((0, 1, 2, 2, 3, 4), entries("pronouns"), strict=True)]
NAMES = entries("names")
CITIES = [halves(text) for _, text in entries("cities")]
TIMES = [(tuple(kinds.split()), halves(text)) for kinds, text in entries("times")]
ADVERBS = [(kinds, halves(text)) for kinds, text in entries("adverbs")]


# --- Noun phrases -------------------------------------------------------------------------------------------


def pick(items: Sequence[T]) -> T:
    return RNG.choice(items)


def chance(probability: float) -> bool:
    return RNG.random() < probability


def share(some: Sequence[str], others: Sequence[str]) -> bool:
    return any(kind in others for kind in some)


def join(*words: str) -> str:
    return " ".join(word for word in words if word)


def german_forms(noun: Noun, determiner: str, adjective: Adjective | None, plural: bool) -> tuple[str, ...]:
    """Nominative, accusative and dative. The adjective has the strong ending if the determiner has none."""
    gender, forms = "p" if plural else noun.gender, []
    for case in (NOM, ACC, DAT):
        strong = STRONG[gender][case]
        weak = "e" if gender != "p" and (case == NOM or (case == ACC and gender != "m")) else "en"
        if determiner == "the":
            word = THE[gender][case]
        elif determiner in LIKE_EIN:
            bare = (gender, case) in (("m", NOM), ("n", NOM), ("n", ACC))
            word, weak = LIKE_EIN[determiner] + ("" if bare else strong), strong if bare else weak
        elif determiner in LIKE_DIESER:
            word, weak = LIKE_DIESER[determiner] + strong, strong if "many" in determiner else weak
        else:
            word, weak = UNINFLECTED.get(determiner, determiner.replace("'", "")), strong
        stem = adjective.de.replace("teuer", "teur") if adjective else ""
        head = noun.de[plural or (noun.weak and case != NOM)]
        dative_n = "n" if plural and case == DAT and not head.endswith(("n", "s")) else ""
        forms.append(join(word, stem and stem + weak, head + dative_n))
    return tuple(forms)


def noun_phrase(noun: Noun, determiner: str, adjective: Adjective | None = None, *, plural: bool = False,
                negated: bool = False) -> Phrase:  # fmt: skip
    """A negated indefinite phrase has kein in German; in English the verb has "not" instead."""
    definite = determiner in ("the", "this", *POSSESSIVES) or determiner.endswith("'s")
    german = german_forms(noun, "no" if negated and not definite else determiner, adjective, plural)
    en = join(adjective.en if adjective else "", noun.en[plural])
    if determiner == "a":
        article = "an" if en[0] in "aeiou" else "a"
    else:
        article = "these" if plural and determiner == "this" else determiner
    owner = ("their" if plural else {"m": "his", "f": "her", "n": ""}[noun.gender]) if "person" in noun.kinds else ""
    return Phrase(join(article, en), join(article, en), german, 4 if plural else 2, owner, False, definite, noun.kinds)


def random_noun(kinds: Sequence[str]) -> Noun:
    return pick([noun for noun in NOUNS if share(noun.kinds, kinds)])


def random_adjective(kinds: Sequence[str], probability: float) -> Adjective | None:
    fitting = [adjective for adjective in ADJECTIVES if share(adjective.kinds, kinds)]
    return pick(fitting) if fitting and chance(probability) else None


def random_phrase(kinds: Sequence[str], owner: str = "", *, subject: bool = False, definite: bool = False,
                  negated: bool = False, adjective: float = 0.3) -> Phrase:  # fmt: skip
    noun = random_noun(kinds)
    plural = noun.de[1] != "" and chance(0.3)
    possessive = owner if owner and chance(0.6) else pick(list(POSSESSIVES))
    determiners = ["the", "the", "the", "this", *([possessive] if "own" in noun.kinds else [])]
    if "need" in noun.kinds:
        determiners = [""]
    elif "kin" in noun.kinds:
        determiners = [possessive] * 3 + [pick(first_names()) + "'s"]
    elif "mass" in noun.kinds:
        determiners += [] if definite else [""] * 3
    elif not definite and plural:
        determiners += [] if negated else ["many", pick(list(NUMBERS)), pick(list(NUMBERS))]
        determiners += [] if subject else [""]
    elif not definite:
        determiners += ["a"] * 3
    described = random_adjective(noun.kinds, adjective * (0.3 if "kin" in noun.kinds else 1))
    return noun_phrase(noun, pick(determiners), described, plural=plural, negated=negated)


def first_names() -> list[str]:
    return [name for owner, name in NAMES if owner in POSSESSIVES]


def random_name() -> Phrase:
    owner, name = pick(NAMES)
    if owner in POSSESSIVES:
        return Phrase(name, name, (name,) * 3, 2, owner, kinds=("person",))
    english, german = halves(pick(owner.split()))
    herrn = german.replace("Herr", "Herrn")  # Herr is a weak masculine
    forms = (f"{german} {name}", f"{herrn} {name}", f"{herrn} {name}")
    owner = "his" if english == "Mr" else "her"
    return Phrase(f"{english} {name}", f"{english} {name}", forms, 2, owner, kinds=("person",))


def actor(kinds: Sequence[str] = ("person",)) -> Phrase:
    if "weather" in kinds:
        return Phrase("it", "it", ("es",), 2, pronoun=True)
    if "person" not in kinds or chance(0.35):
        return random_phrase(kinds, subject=True)
    if chance(0.1):
        en, other = RNG.sample(first_names(), 2)
        return Phrase(f"{en} and {other}", "", (f"{en} und {other}",), 4, "their", kinds=("person",))
    return pick(PRONOUNS) if chance(0.6) else random_name()


def receiver(kinds: Sequence[str], subject: Phrase, *, definite: bool = False, negated: bool = False) -> Phrase:
    """An object. A pronoun does not refer back to the subject."""
    if "person" not in kinds or chance(0.5):
        return random_phrase(kinds, subject.owner, definite=definite, negated=negated)
    clash = {0: (0, 3), 1: (1,), 3: (0, 3)}.get(subject.person, ())
    return pick([p for p in PRONOUNS if p.person not in clash]) if chance(0.5) else random_name()


def prepositional(preposition: str, phrase: Phrase, case: int) -> str:
    text = f"{preposition} {phrase.de[case]}"
    for full, short in CONTRACTIONS.items():
        text = re.sub(f"^{full} ", f"{short} ", text)
    return text


def place(kinds: Sequence[str], *, goal: bool) -> Pair:
    if chance(0.12) and "water" not in kinds:
        return ("home", "nach Hause") if goal else ("at home", "zu Hause")
    noun = pick([noun for noun in NOUNS if noun.prepositions and share(noun.kinds, kinds)])
    determiner = pick(list(POSSESSIVES)) if "own" in noun.kinds and chance(0.4) else "the"
    phrase = noun_phrase(noun, determiner, random_adjective(noun.kinds, 0.25))
    english, there, thither = noun.prepositions
    if goal:
        return f"to {phrase.en}", prepositional(thither, phrase, DAT if thither == "zu" else ACC)
    return f"{english} {phrase.en}", prepositional(there, phrase, DAT)


# --- Clauses ------------------------------------------------------------------------------------------------


def clause(verb: Verb, subject: Phrase | None = None, tenses: Sequence[str] = tuple(TENSES), *, gap: bool = False,
           plain: bool = False, affirm: bool = False, accusative: Phrase | None = None) -> Clause:  # fmt: skip
    """A random clause of the verb. A gap leaves out its object or place; a plain clause has no time and no adverb."""
    subject = subject or actor(verb.subjects)
    unfit = () if "person" in verb.subjects else tuple(MODALS)
    if verb.frame == "lie":
        unfit = ("perfect", "past", "future", *MODALS)
    elif not verb.progressive:
        unfit = ("progressive", *MODALS)
    choices = ["present"] if verb.state else [tense for tense in tenses if tense not in unfit] or ["present"]
    tense = RNG.choices(choices, [TENSES[tense] for tense in choices])[0]
    negated = not (gap or affirm or accusative) and tense != "must" and chance(0.18)
    dative = oblique = None
    if verb.frame in ("acc", "both", "to", "put") and not gap and not accusative:
        accusative = receiver(verb.objects, subject, negated=negated)
    if verb.frame in ("both", "to") or (verb.frame == "dat" and not gap):
        dative = receiver(("person",), subject, definite=negated)
    if verb.frame == "prep" and not gap:
        oblique = receiver(verb.objects, subject, definite=negated)
    extra = adverbials(verb, subject, gap=gap)
    return Clause(subject, verb, tense, negated, accusative, dative, oblique, extra, *when(verb, tense, negated, plain))


def adverbials(verb: Verb, subject: Phrase, *, gap: bool) -> Pair:
    """Company, means and place. The place comes first in English and last in German."""
    how = where = NOTHING
    if verb.frame in ("loc", "city", "live", "dir") and verb.infinitive != "schlafen" and chance(0.15):
        companion = receiver(("person",), subject, definite=True)
        how = (f"with {companion.en_object}", prepositional("mit", companion, DAT))
    elif verb.infinitive == "reisen" and chance(0.5):
        how = pick(MEANS)
    if verb.frame in ("city", "live") and not gap:
        en, de = pick(CITIES)
        where = (f"to {en}", f"nach {de}") if verb.frame == "city" else (f"in {en}", f"in {de}")
    elif verb.frame in ("loc", "dir") and not gap:
        where = place(verb.objects, goal=verb.frame == "dir")
    elif verb.frame in ("put", "lie"):
        (en, de), furniture = pick(POSITIONS), random_phrase(["furniture"], subject.owner, definite=True)
        where = (f"{en} {furniture.en}", f"{de} {furniture.de[ACC if verb.frame == 'put' else DAT]}")
    elif verb.frame == "acc" and share(verb.objects, ("person", "text", "food", "drink", "song")) and not verb.state:
        where = place(["place"], goal=False) if chance(0.15) else NOTHING
    return join(where[0], how[0]), join(how[1], where[1])


def when(verb: Verb, tense: str, negated: bool, plain: bool) -> tuple[Pair, Pair]:
    """A time, an adverb or neither. A past that looks like the present ("read") always has a time."""
    if plain or verb.state:
        return NOTHING, NOTHING
    if tense == "past" and (verb.frame in ("city", "live") or "building" in verb.objects) and chance(0.5):
        year = pick(YEARS)
        return (f"in {year}", f"im Jahr {year}"), NOTHING
    ambiguous = tense == "past" and verb.en[0] == verb.en[1]
    if ambiguous or chance({"past": 0.7, "perfect": 0.15, "future": 0.6}.get(tense, 0.35)):
        name = "future" if tense in MODALS else tense
        return pick([time for tenses, time in TIMES if name in tenses]), NOTHING
    if negated and tense == "perfect" and chance(0.5):
        return NOTHING, ("yet", "noch")
    fitting = [adverb for name, adverb in ADVERBS if name == tense and not negated]
    return NOTHING, pick(fitting) if fitting and chance(0.5) else NOTHING


def english_verb(c: Clause) -> tuple[str, str, str]:
    """The auxiliary, what follows it, and the form without an auxiliary if there is one."""
    (base, past, participle), third = c.verb.en, c.subject.person == 2
    be, do = ("am", "are", "is", "are", "are")[c.subject.person], "does" if third else "do"
    if base == "be" and c.tense in ("present", "past"):
        return be if c.tense == "present" else "was" if c.subject.person in (0, 2) else "were", "", ""
    return {
        "present": (do, base, third_person(base) if third else base),
        "past": ("did", base, past),
        "progressive": (be, ing(base), ""),
        "perfect": ("has" if third else "have", participle, ""),
        "since": ("has" if third else "have", participle, ""),
        "future": ("will", base, ""),
        "want to": (do, f"want to {base}", f"{'wants' if third else 'want'} to {base}"),
        "would like to": ("would", f"like to {base}", ""),
        "be allowed to": (be, f"allowed to {base}", ""),
    }.get(c.tense, (c.tense, base, ""))


def english(c: Clause, order: str = "statement") -> str:
    """Orders: statement, front (the time first), question, bare (infinitive) and ing."""
    auxiliary, rest, alone = english_verb(c)
    particle, dative = c.verb.particle, c.dative.en_object if c.dative else ""
    things = join(*(phrase.en_object for phrase in (c.accusative, c.oblique) if phrase))
    objects = join(things, particle) if c.verb.object_first else join(particle, dative, things)
    if c.verb.frame == "to":
        objects = join(things, particle, f"to {dative}")
    adverb, late = ("", "yet") if c.adverb[0] == "yet" else (c.adverb[0], "")
    tail = join(objects, c.extra[0], late, "" if order == "front" else c.time[0])
    if order in ("bare", "ing"):
        return join(c.verb.en[0] if order == "bare" else ing(c.verb.en[0]), tail)
    if order == "question":
        return join(auxiliary, c.subject.en, adverb, rest, tail)
    words = join(auxiliary, "not" if c.negated else "", adverb, rest).replace("can not", "cannot")
    words = join(adverb, alone) if alone and not c.negated else words
    return join(c.time[0] if order == "front" else "", c.subject.en, words, tail)


def conjugate(verb: Verb, person: int) -> str:
    if verb.infinitive in IRREGULAR:
        return IRREGULAR[verb.infinitive][person]
    stem = re.sub("e?n$", "", verb.infinitive)
    changed, link = verb.stem or stem, "e" if not verb.stem and stem.endswith(("t", "d", "gn")) else ""
    second = changed + ("t" if changed.endswith(("s", "ß", "z")) else link + "st")
    return {0: stem + "e", 1: second, 2: changed + link + "t"}.get(person, verb.infinitive)


def german(c: Clause, order: str = "statement") -> str:
    """Orders: statement, front (the time first), question (verb first), sub (verb last) and zu."""
    verb, person = c.verb, c.subject.person
    infinitive = verb.prefix + verb.infinitive
    if c.tense == "past" and infinitive == "sein":
        finite, closing = ("war", "warst", "war", "waren", "waren")[person], ""
    elif c.tense in ("perfect", "past"):
        finite, closing = IRREGULAR[verb.auxiliary][person], verb.participle
    elif c.tense in ("future", *MODALS):
        finite, closing = IRREGULAR[MODALS.get(c.tense, "werden")][person], infinitive
    else:
        finite, closing = conjugate(verb, person), verb.prefix
        if order == "sub":
            finite, closing = verb.prefix + finite, ""
    objects = [(phrase, phrase.de[case]) for phrase, case in ((c.dative, DAT), (c.accusative, ACC)) if phrase]
    pronouns = [text for phrase, text in objects if phrase.pronoun]
    known = [text for phrase, text in objects if phrase.definite and not phrase.pronoun]
    new = [text for phrase, text in objects if not phrase.definite]
    kein = c.accusative is not None and not c.accusative.definite
    accent = [c.adverb[1], "nicht" if c.negated and not kein else ""]
    time = "" if order == "front" else c.time[1]
    # nicht and the adverbs stand behind the objects already known, and draw the time along with them.
    middle = [*known, time, *accent] if any(accent) else [time, *known]
    oblique = ""
    if c.oblique and verb.case == DAT:
        oblique = prepositional(verb.preposition, c.oblique, DAT)
    elif c.oblique:
        oblique = f"{verb.preposition} {c.oblique.de[ACC]}"
    subject, reflexive = c.subject.de[NOM], REFLEXIVE[person] if verb.reflexive else ""
    # sich stands behind a subject that is a pronoun, and before one that is a noun.
    inner = join(subject, reflexive) if c.subject.pronoun else join(reflexive, subject)
    field = join(*pronouns, *middle, *new, c.extra[1], oblique)
    return {
        "statement": join(subject, finite, reflexive, field, closing),
        "front": join(c.time[1], finite, inner, field, closing),
        "question": join(finite, inner, field, closing),
        "sub": join(inner, field, closing, finite),
        "zu": join(reflexive, field, f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"),
    }[order]


# --- Sentence patterns --------------------------------------------------------------------------------------


WHO = Phrase("who", "whom", ("wer", "wen", "wem"), 2, pronoun=True)
WHAT = Phrase("what", "what", ("was", "was"), 2)


def main_clause(c: Clause) -> Pair:
    order = "front" if c.time != NOTHING and chance(0.45) else "statement"
    return english(c, order), german(c, order)


def subordinate(conjunction: Pair, c: Clause) -> Pair:
    return f"{conjunction[0]} {english(c)}", f"{conjunction[1]} {german(c, 'sub')}"


def after_comma(main: Clause, below: Pair) -> Pair:
    """A subordinate clause after the main clause, with a comma in German and none in English."""
    return f"{english(main)} {below[0]}", f"{german(main)}, {below[1]}"


def random_verb(*frames: str, personal: bool = True, dynamic: bool = False) -> Verb:
    verbs = [verb for verb in VERBS if verb.frame in (frames or ACTIONS) and not (dynamic and not verb.progressive)]
    return pick([verb for verb in verbs if "person" in verb.subjects] if personal else verbs)


def verb_named(infinitive: str) -> Verb:
    return next(verb for verb in VERBS if verb.prefix + verb.infinitive == infinitive)


def same(subject: Phrase) -> Phrase:
    """The pronoun for someone already named (he for Peter), or someone else if there is no such pronoun."""
    if subject.pronoun:
        return subject
    return next((pronoun for pronoun in PRONOUNS if pronoun.owner == subject.owner), None) or actor()


def copula(subject: Phrase, tenses: Sequence[str] = ("present", "past"), *, affirm: bool = False,
           mood: float = 0.6) -> Clause:  # fmt: skip
    """Someone or something has a quality; people may also have a mood."""
    moody = not subject.kinds or ("person" in subject.kinds and chance(mood))
    adjective = pick([one for one in ADJECTIVES if share(one.kinds, ("state",) if moody else subject.kinds)])
    en, de = NOTHING if "colour" in adjective.kinds else pick([NOTHING, NOTHING, ("very", "sehr"), ("too", "zu")])
    extra = (join(en, adjective.en), join(de, adjective.de))
    return Clause(subject, verb_named("sein"), pick(tenses), not affirm and chance(0.2), extra=extra)


def statement() -> Pair:
    return main_clause(clause(random_verb(personal=False)))


def quality() -> Pair:
    things = ("animal", "thing", "text", "clothes", "car", "building", "furniture", "room", "film", "topic")
    return main_clause(copula(actor() if chance(0.2) else random_phrase([pick(things)], definite=True, adjective=0)))


def yes_no() -> Pair:
    c = clause(random_verb(personal=False), affirm=True) if chance(0.85) else copula(actor(), affirm=True)
    return english(c, "question"), german(c, "question")


def question(*, indirect: bool = False) -> Pair:
    """A question with who, whom, what, which, how many, when, why or where. In an indirect one the verb is last."""
    style = pick(("who", "object", "object", "object", "time", "place"))
    if style == "who":
        c = clause(random_verb(), WHO, affirm=True)
        return english(c), german(c, "sub" if indirect else "statement")
    if style == "object":
        c = clause(random_verb("acc", "dat", "prep"), gap=True)
        objects = c.verb.objects
        if "person" in objects and chance(0.5):
            asked = WHO
        elif c.verb.frame == "acc" and "person" not in objects and chance(0.4):
            asked = WHAT
        else:
            noun = pick([noun for noun in NOUNS if share(noun.kinds, objects) and "kin" not in noun.kinds])
            many = noun.de[1] != "" and chance(0.4)
            asked = noun_phrase(noun, "how many" if many else "which", plural=many)
        link = (asked.en_object, join(c.verb.preposition, asked.de[object_case(c.verb)]))
    elif style == "time":
        link = pick([("when", "wann"), ("why", "warum")])
        verb = random_verb(dynamic=True)
        tenses = [tense for tense in ("past", "future", *MODALS) if tense != "past" or verb.en[0] != verb.en[1]]
        c = clause(verb, tenses=tenses, plain=True, affirm=True)
    else:
        where = [verb for verb in VERBS if verb.frame in ("dir", "loc", "live") and verb.infinitive != "kommen"]
        c = clause(pick(where), gap=True)
        link = ("where", "wohin" if c.verb.frame == "dir" else "wo")
    if indirect:
        return subordinate(link, c)
    return f"{link[0]} {english(c, 'question')}", f"{link[1]} {german(c, 'question')}"


def object_case(verb: Verb) -> int:
    return {"prep": verb.case, "dat": DAT}.get(verb.frame, ACC)


def report(subject: Phrase) -> Clause:
    """The content of a subordinate clause, sometimes about the subject of the main clause."""
    who = same(subject) if chance(0.4) else actor()
    return copula(who) if chance(0.2) else clause(random_verb(), who)


def that_clause() -> Pair:
    if chance(0.2):
        main = replace(clause(verb_named("hören"), tenses=["perfect"], gap=True, plain=True), extra=NOTHING)
    else:
        verb = random_verb("that")
        main = clause(verb, affirm=verb.infinitive not in ("wissen", "glauben"))
    return after_comma(main, subordinate(("that", "dass"), report(main.subject)))


def indirect_question() -> Pair:
    main = clause(verb_named("wissen"), affirm=True)
    style = pick(("know", "want", "ask"))
    if style == "ask":
        main = clause(verb_named("fragen"), main.subject, ["present", "perfect"], gap=True, plain=True)
        main = replace(main, extra=NOTHING)
    else:
        main = replace(main, negated=True) if style == "know" else replace(main, tense="want to")
    whether = subordinate(("whether", "ob"), report(main.subject))
    return after_comma(main, question(indirect=True) if chance(0.5) else whether)


def state_of_affairs(subject: Phrase, *, past: bool) -> Clause:
    """A state that can be a reason, an obstacle or a condition."""
    style = RNG.random()
    if style < 0.6 or past:
        return copula(subject, ["past" if past else "present"], affirm=True, mood=1)
    if style < 0.75:
        need = noun_phrase(random_noun(["need"]), pick(("no", "")))
        return Clause(subject, verb_named("haben"), "present", accusative=need)
    return clause(random_verb("acc", "dat", "prep", "loc", dynamic=True), subject, ["want to", "must"], plain=True)


def because() -> Pair:
    """because, although and if. After the subordinate clause, the main clause begins with its verb."""
    conjunction = pick([("because", "weil"), ("because", "weil"), ("although", "obwohl"), ("if", "wenn")])
    conditional = conjunction[0] == "if"
    tenses = ["future", "can", "must", "should"] if conditional else ["past", "perfect", "progressive", "future"]
    first = actor()
    second = same(first) if chance(0.75) else actor()
    front = chance(0.35)
    verb = random_verb(dynamic=True)
    main = clause(verb, second if front else first, tenses, plain=verb.en[0] != verb.en[1])
    if conditional and chance(0.3):
        below = clause(random_verb("intr", personal=False), actor(["weather"]), ["present"], plain=True, affirm=True)
        below = replace(below, verb=verb_named(pick(("regnen", "schneien"))))
    else:
        below = state_of_affairs(first if front else second, past=main.tense == "past")
    en, de = subordinate(conjunction, below)
    return (f"{en}, {english(main)}", f"{de}, {german(main, 'question')}") if front else after_comma(main, (en, de))


def relative() -> Pair:
    """The relative pronoun has the gender of its noun and the case of its own clause."""
    noun = random_noun(("person", "animal", "text", "thing", "clothes", "car", "public", "film"))
    while "kin" in noun.kinds:
        noun = random_noun(("person",))
    plural = noun.de[1] != "" and chance(0.3)
    head = noun_phrase(noun, "the", plural=plural)
    forms = (*THE["p"][:2], "denen") if plural else THE[noun.gender]
    human = "person" in noun.kinds
    if human and chance(0.5):
        c = clause(random_verb(), replace(head, en="who", de=forms, pronoun=True))
        en, de = english(c), german(c, "sub")
    else:
        verbs = [v for v in VERBS if v.frame in ("acc", "dat", "prep") and share(v.objects, noun.kinds)]
        c = clause(pick([v for v in verbs if "person" in v.subjects]), gap=True)
        en, de = subordinate(("whom" if human else "that", join(c.verb.preposition, forms[object_case(c.verb)])), c)
    if chance(0.5):
        told = copula(head, ["present"])
        _, _, predicate = english(told).partition(head.en + " ")
        return f"{head.en} {en} {predicate}", f"{head.de[NOM]}, {de}, {german(told).removeprefix(head.de[NOM] + ' ')}"
    verb = pick([v for v in VERBS if v.frame == "acc" and share(v.objects, noun.kinds) and not v.object_first])
    main = clause(verb, accusative=head, plain=True)
    main = replace(main, extra=NOTHING)
    return after_comma(main, (en, de))


def infinitive() -> Pair:
    """zu, and um ... zu after verbs of motion."""
    aim = chance(0.4)
    tenses = ("perfect", "past", "progressive", "present", "future")
    main = clause(random_verb("dir", "city") if aim else random_verb("zu"), None, tenses, plain=True, affirm=True)
    inner = clause(random_verb("acc", "dat", "prep", "both", dynamic=True), main.subject, plain=True, affirm=True)
    inner = replace(inner, extra=NOTHING) if aim else inner
    return after_comma(main, (f"to {english(inner, 'bare')}", join("um" if aim else "", german(inner, "zu"))))


def liking() -> Pair:
    noun = random_noun(("text", "work", "drink", "food", "song", "clothes"))
    verbs = [v for v in VERBS if v.frame == "acc" and share(v.objects, noun.kinds) and v.progressive and not v.particle]
    things = noun_phrase(noun, "", random_adjective(noun.kinds, 0.3), plural=noun.de[1] != "")
    c = clause(pick(verbs), tenses=["present"], accusative=things, plain=True)
    c = replace(c, extra=NOTHING)
    if chance(0.3):
        c = clause(random_verb("loc", "prep", dynamic=True), tenses=["present"], plain=True, affirm=True)
    en, de = pick([("likes", "gern"), ("does not like", "nicht gern")])
    if c.subject.person != 2:
        en = en.replace("does", "do").replace("likes", "like")
    return join(c.subject.en, en, english(c, "ing")), german(replace(c, adverb=("", de)))


def since() -> Pair:
    """For what still goes on, English has the perfect and German the present."""
    c = clause(verb_named(pick(("wohnen", "studieren", "arbeiten"))), tenses=["perfect"], plain=True, affirm=True)
    year = pick(YEARS[8:])
    times = [time for tenses, time in TIMES if "since" in tenses]
    c = replace(c, tense="since", time=pick(times) if chance(0.6) else (f"since {year}", f"seit {year}"))
    return english(c), german(c)


PATTERNS: list[tuple[int, Callable[[], Pair], str]] = [
    (40, statement, "."), (5, quality, "."), (8, yes_no, "?"), (9, question, "?"), (9, that_clause, "."),
    (6, indirect_question, "."), (12, because, "."), (9, relative, "."), (8, infinitive, "."), (2, liking, "."),
    (2, since, "."),
]  # fmt: skip


# --- The corpus ---------------------------------------------------------------------------------------------


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def sentence() -> Pair:
    _, pattern, mark = RNG.choices(PATTERNS, [weight for weight, _, _ in PATTERNS])[0]
    en, de = pattern()
    return en[0].upper() + en[1:] + mark, de[0].upper() + de[1:] + mark


def acceptable(en: str, de: str) -> bool:
    """Whether both sentences have a good length and no noun, name or other word is repeated clumsily."""
    if re.search("jung[a-z]* Junge", de) or re.search(r"\b(\w+) \1\b", en):
        return False
    capitalised = [word for word in words(de) if word[0].isupper()]
    lengths = [len(side.split()) for side in (en, de)]
    return min(lengths) >= 3 and max(lengths) <= MAX_WORDS and len(set(capitalised)) == len(capitalised)


def corpus(size: int) -> list[Pair]:
    """Pairs in which no English sentence and no German sentence occurs twice."""
    pairs: list[Pair] = []
    seen: set[str] = set()  # for membership only: the order of a set differs between machines
    while len(pairs) < size:
        en, de = sentence()
        if acceptable(en, de) and f"en {en}" not in seen and f"de {de}" not in seen:
            seen.update((f"en {en}", f"de {de}"))
            pairs.append((en, de))
    return pairs


def split(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Hold out sentences made of words that the training part has too. Exits if a word form would be new."""
    counts = [Counter(word for pair in pairs for word in words(pair[side])) for side in (0, 1)]
    common = [all(counts[side][word] >= MIN_OCCURRENCES for side in (0, 1) for word in words(pair[side])) for pair in pairs]
    held_out = [index for index, fit in enumerate(common) if fit][-2 * HELD_OUT :]
    kept = [pair for index, pair in enumerate(pairs) if index < held_out[0] or not common[index]]
    splits = {
        "train": kept,
        "valid": [pairs[index] for index in held_out[:HELD_OUT]],
        "test": [pairs[index] for index in held_out[HELD_OUT:]],
    }
    for side in (0, 1):
        known = {word for pair in splits["train"] for word in words(pair[side])}
        held = [pair for name in ("valid", "test") for pair in splits[name]]
        new = sorted({word for pair in held for word in words(pair[side])} - known)
        if new:
            raise SystemExit(f"word forms that are not in the training part: {new}")
        sentences = [pair[side] for part in splits.values() for pair in part]
        if len(set(sentences)) != TRAIN + 2 * HELD_OUT:
            raise SystemExit("a sentence occurs twice")
    return splits


def main() -> None:
    for name, pairs in split(corpus(TRAIN + 2 * HELD_OUT)).items():
        for side, language in enumerate(("en", "de")):
            data = "".join(pair[side] + "\n" for pair in pairs).encode()
            if name == "train":
                # No time and no file name in the header: the bytes depend on the text alone.
                with (
                    (HERE / f"{name}.{language}.gz").open("wb") as raw,
                    gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as packed,
                ):
                    packed.write(data)
            else:
                (HERE / f"{name}.{language}").write_bytes(data)
        print(f"{name}: {len(pairs)} pairs")


if __name__ == "__main__":
    main()
