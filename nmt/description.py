"""config.json: what a model directory tells of itself, checked as it is read, for the file may be damaged or a stranger's."""

import hashlib
import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from nmt.config import ModelConfig, TrainingConfig

LANGUAGE = re.compile(r"\w[\w .-]{0,49}")  # a part of file names: en, pt-BR, zh_Hans, or the name of a column


def _language(code: str) -> str:
    if not LANGUAGE.fullmatch(code):
        raise ValueError("must be a language's code")
    return code


def _name(name: str) -> str:
    name.encode(errors="surrogateescape")  # a file's name need not be UTF-8, but no half of a surrogate pair is one
    return name


Language = Annotated[str, AfterValidator(_language)]
Name = Annotated[InstanceOf[str], AfterValidator(_name)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    """Strict of what is known; what is not is passed over, but for settings: with others, a model is of another format."""

    model_config = ConfigDict(strict=True, extra="allow")


class Data(_Part):
    """The corpus: its name, by split its lines and the SHA-256 of their text, the source's Unicode form (see looks.py), and
    whether lines without a letter are copied.
    """

    name: Name
    lines: dict[str, Count]
    sha256: dict[str, Digest]
    form: str = ""
    copies_letterless: bool = True


class VocabularyFile(_Part):
    """What tokenizer.model must be."""

    size: Count
    sha256: Digest


class Origin(_Part):
    """The model that this one was fine-tuned from: its corpus, and the SHA-256 of its weights."""

    data: Name
    weights: Digest


class Description(_Part):
    """All that some command relies on; `format` has been looked at before."""

    source: Language
    target: Language
    data: Data
    model: ModelConfig
    training: TrainingConfig
    preset: str
    vocabulary: VocabularyFile
    origin: Origin | None = Field(None, alias="from")
    nmt: str | None = None
    versions: dict[str, str] = {}
    begun: str | None = None
    command: InstanceOf[str] | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of source and target."""
        return self.source, self.target

    @property
    def kind(self) -> str:
        """What weights must have been made for to be this model's, see `kind_of`."""
        return kind_of(self.languages, self.model, self.vocabulary.sha256)


def kind_of(languages: tuple[str, str], model: ModelConfig, vocabulary: str) -> str:
    """A digest of what makes weights one model's and not another's: languages, architecture, the vocabulary's digest."""
    architecture = {name: value for name, value in model.model_dump().items() if "dropout" not in name}
    return hashlib.sha256(json.dumps([languages, architecture, vocabulary], sort_keys=True).encode()).hexdigest()


def parse(config: dict[str, Any]) -> Description:
    """The contents of a config.json. Raises ValueError that names the setting and the rule that it breaks."""
    try:
        return Description.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
        raise ValueError(told) from None
