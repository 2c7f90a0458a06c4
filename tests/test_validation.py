"""Validation: its BLEU is of what `nmt translate` would write."""

import torch

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.vocabulary import Vocabulary
from nmt.model.transformer import Transformer
from nmt.scoring import metrics
from nmt.training.ranks import Ranks
from nmt.translation.engine import TorchEngine
from nmt.translation.translator import Translator
from nmt.validation import Validator

SOURCE = ["Am 3. Oktober kam er.", "Er ging. Sie kam.", "Sie kam am 5. Mai. Er blieb.", "Er blieb."]
REFERENCE = ["He came.", "He left. She came.", "She came. He stayed.", "He stayed."]


def test_lines_of_several_sentences_are_split_as_translate_splits_them(vocabulary: Vocabulary) -> None:
    """By the rules of the source language: the samples and the BLEU are of the same text."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig(layers=1, d_model=16, heads=2, d_ff=16, dropout=0.0), len(vocabulary))
    validator = Validator("valid", SOURCE, REFERENCE, ("de", "en"), vocabulary, TrainingConfig())
    validation = validator.validate(model, 100, Ranks())
    german, english = (Translator(TorchEngine(model), vocabulary, code, "en").translate(SOURCE) for code in ("de", "en"))
    assert [sample["translation"] for sample in validation["samples"]] == german != english
    assert validation["bleu"] == metrics.bleu(german, [REFERENCE]).value
