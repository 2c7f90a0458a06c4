"""config.json as names and types: what a model directory says about itself, checked as it is read."""

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from nmt.config import ModelConfig, TrainingConfig

LANGUAGE = r"^\w[\w .-]{0,49}$"  # part of file names (en, pt-BR, zh_Hans), or the name of a column
FIRST_SETTINGS = ("layers", "d_model", "heads", "d_ff", "norm", "layer_norm_epsilon")  # of the first version, besides dropout
Language = Annotated[str, Field(pattern=LANGUAGE)]
Name = InstanceOf[str]  # pydantic's own str refuses file names that are not UTF-8
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    """Checks the keys it knows and ignores others; unknown model and training settings mean another version's model."""

    model_config = ConfigDict(strict=True, extra="allow")


class OtherData(_Part):
    """A further corpus: its name, lines, the SHA-256 of its text, its weight, and whether a machine wrote its sources."""

    name: Name
    lines: dict[str, Count]
    sha256: dict[str, Digest]
    weight: float | None = None
    synthetic: bool = False


class Data(_Part):
    """The corpus: its name, and for each split the number of lines and the SHA-256 of the text."""

    name: Name
    lines: dict[str, Count]
    sha256: dict[str, Digest]
    form: str = ""  # the Unicode form of the source side, see looks.py
    weight: float | None = None
    others: list[OtherData] = []
    copies_letterless: bool = True  # whether lines without a letter are copied and not translated


class VocabularyFile(_Part):
    """The size and digest that tokenizer.model must have."""

    size: Count
    sha256: Digest


class Origin(_Part):
    """The model that a fine-tuned one started from: its corpus, and the SHA-256 of its weights."""

    data: Name
    weights: Digest


class Description(_Part):
    """Everything in config.json that some command relies on, except its format number."""

    source: Language
    target: Language
    data: Data
    model: ModelConfig
    training: TrainingConfig
    preset: str
    vocabulary: VocabularyFile
    origin: Origin | None = Field(None, alias="from")
    ranks: int = 1
    nmt: str | None = None
    versions: dict[str, str] = {}
    begun: str | None = None
    command: Name | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of source and target."""
        return self.source, self.target

    @property
    def kind(self) -> str:
        """A digest of what weights depend on: languages, architecture, vocabulary. Weights of another kind are refused.

        A setting that the first version did not have is left out at its default, so that digests of that version still hold.
        """
        fields = ModelConfig.model_fields
        architecture = {
            name: value
            for name, value in self.model.model_dump().items()
            if name in FIRST_SETTINGS or ("dropout" not in name and value != fields[name].default)
        }
        parts = [self.languages, architecture, self.vocabulary.sha256]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def parse(config: dict[str, Any]) -> Description:
    """The contents of config.json. Raises ValueError that names the setting and the rule it breaks."""
    try:
        return Description.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        setting, rule = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{setting}: {rule}") from None
