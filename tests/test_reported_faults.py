"""Faults that users of other translation toolkits reported in public, each met here as its user met it.

Each test runs the command as a process, through real files and pipes, and asks for the lines and messages that are right.
"""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Nmt, write_corpus
from tests.data.test_hub import ELSEWHERE, NOWHERE
from tests.runs import Pairs, events, files, outcome, recipe

Run = subprocess.CompletedProcess[bytes]
Begun = tuple[list[str | Path], Path, str]  # the command of a run but for its directory; the directory; what was told
Found = list[dict[str, Any]]  # the best translation of each line, as JSON tells it


def printed(done: Run) -> list[str]:
    """The lines on stdout of a command that went well."""
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stdout or done.stdout.endswith(b"\n")
    return done.stdout.decode().split("\n")[:-1]


def told(done: Run) -> str:
    """What a command that went well, and printed nothing, told a person."""
    assert printed(done) == []
    return done.stderr.decode()


def refused(done: Run, code: int = 2) -> str:
    """The one sentence with which a command ended that has this exit code."""
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout, "Traceback" in errors) == (code, b"", False), errors
    [sentence] = [line for line in errors.splitlines() if line.startswith("nmt: ")]
    return sentence


def best(rows: list[str]) -> Found:
    records = [json.loads(row) for row in rows]
    assert [record["line"] for record in records] == list(range(1, len(rows) + 1))
    return [record["hypotheses"][0] for record in records]


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# A corpus of a few lines, all of them treacherous, learned by heart: what must come back is known to the character.

DROPPED = [("", "Leer ."), ("Nothing .", ""), ("x", "word " * 300), ("y", "word " * 20), ("word " * 900, "Wort " * 900)]
KEPT = {
    "separators": [
        ("Good\u2028morning.", "Guten Morgen."), ("A\x85B", "A B"), ("C\x0bD", "C D"), ("E\x0cF", "E F"),
        ("G\x1cH", "G H"), ("price\r list", "Preisliste"), ("last", "letzte"),
    ],
    "nul": [("before\x00after here", "vorher nachher"), ("ok", "ok")],
    "fine print": [("½ of 10\u00a0km… m² Zu\u00adsammen ﬁsh Hel\u200blo a  b\tc", "½ 10\u00a0km… m² u\u00ads ﬁ l\u200bl  b c")],
    "rare signs": [("Hi 😀! See you at Öl-Markt.", "Hallo 😀! Bis dann am Öl-Markt."), ("ŵ ђ 漢", "漢 ђ ŵ")],
    "Windows": [("Hello world .", "Hallo Welt ."), ("name\tvalue", "Name Wert"), ("last line", "letzte Zeile")],
}  # fmt: skip
CORPUS = DROPPED + [pair for pairs in KEPT.values() for pair in pairs]
FAMILY = "\U0001f469\u200d\U0001f467"  # one sign of three characters


@pytest.fixture(scope="module")
def by_heart(tmp_path_factory: pytest.TempPathFactory, nmt: Nmt) -> tuple[Path, str]:
    """The model, and what its training told. English came from Windows: byte order mark, CR LF, a last line without end."""
    root = tmp_path_factory.mktemp("by-heart")
    data = write_corpus(root / "a,b. c", train=CORPUS)
    (data / "train.en").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(source for source, _ in CORPUS).encode())
    config = recipe(root, d_model=64, d_ff=128, vocab_size=4_000, steps=110, warmup=40, label_smoothing=0.0)
    words = ["train", "--data", data, "--preset", "tiny", "--config", config, "--dropout", "0", "-m", root / "model"]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # as a container with one core
    try:
        return root / "model", told(nmt(*words, OMP_NUM_THREADS=""))
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.fixture(scope="module")
def recalled(by_heart: tuple[Path, str], nmt: Nmt) -> dict[str, str]:
    """What the model makes of each source that it learned, from a file as before, in a locale that is not UTF-8."""
    lines = [*(source for source, _ in CORPUS[len(DROPPED) :]), FAMILY]
    (text := by_heart[0].with_name("text")).write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    elsewhere = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    done = nmt("translate", text, "-m", by_heart[0], "--no-split", **elsewhere)
    assert done.stderr == b""
    return dict(zip(lines, printed(done), strict=True))


@pytest.mark.parametrize("kind", KEPT)
def test_treacherous_text_is_learned_and_translated_to_the_character(kind: str, recalled: dict[str, str]) -> None:
    """No line breaks but at LF; nothing is rewritten, lost or unknown; what Windows adds is part of no word."""
    assert [recalled[source] for source, _ in KEPT[kind]] == [target for _, target in KEPT[kind]]
    assert recalled[FAMILY] == FAMILY  # has no letter, so that it is copied


def test_a_text_with_odd_separators_scores_100_against_itself(nmt: Nmt, tmp_path: Path) -> None:
    """In as many lines as there are LF. (Not in BLEU, which is 0 without four words in a row.)"""
    text = write_corpus(tmp_path, train=KEPT["separators"]) / "train.en"
    [line] = printed(nmt("score", text, "-r", text, "--metric", "chrf"))
    assert f": chrF2 100.00 ({text.read_bytes().count(10)} lines) nrefs:1|case:mixed|" in line


def test_a_run_accounts_for_every_pair_and_tells_what_it_does(by_heart: tuple[Path, str]) -> None:
    """Dropped by reason; as few pieces as the text fills; seed, device, no more threads than cores; updates, speed, end."""
    for line in (
        r"vocabulary: [3-9]\d\d pieces instead of 4,000: the corpus fills no more, learned from \d+ pairs",
        r"a,b. c: read 20 pairs, kept 15, dropped 5: 2 over 256 pieces, 1 with an empty source, 1 with an empty target, "
        r"1 with a length ratio over 3; control characters became spaces in 9",
        r"model: .* on CPU, 1 thread, \w+ kernels with (native|emulated) bf16, \d+ GiB of memory, fp32; "
        r"micro-batches of 1,280 tokens; seed 1; .*",
        r"updates: 110 of about 150 target tokens; an epoch has \d+ tokens, or 1 update",
        r"update 100 of 110: loss \d\.\d{3}, [\d,]+ tokens/s, .+ left, lr 1\.25e-02",
    ):
        assert re.search(f"^{line}$", by_heart[1], re.MULTILINE), line


@pytest.mark.parametrize(
    ("en", "de", "words"),
    [
        (b"a b\nc d\ne f\n", b"A B\nC D\n", "train.en has 3 lines but .*train.de has 2: line 3 "),
        (b"ok\ncaf\xe9 au lait\n", b"ok\nok\n", "train.en, line 2: not UTF-8"),
        (b"", b"", "--data .*: holds no text"),
        (b"word " * 2_000, b"Wort " * 2_000, "no training pair is left .*: 1 over 256 pieces"),
    ],
    ids=["uneven", "Latin-1", "empty", "one long line"],
)
def test_bad_text_is_one_sentence(nmt: Nmt, tmp_path: Path, en: bytes, de: bytes, words: str) -> None:
    """With the file, counts or line at fault, and before there is a model directory."""
    (tmp_path / "train.en").write_bytes(en)
    (tmp_path / "train.de").write_bytes(de)
    done = nmt("train", "--data", tmp_path, "-m", tmp_path / "model")
    assert re.search(words, refused(done))
    assert not (tmp_path / "model").exists()


class Hub(BaseHTTPRequestHandler):
    """Serves one data set as the hub does; the first time its file is asked for, one half of it, and then no more."""

    rows = ({"en": f"sentence number {n} .", "de": f"Satz Nummer {n} .", "note": 5_000 * "x"} for n in range(600))
    content = joined([json.dumps(row) for row in rows]).encode()
    halved, revision, protocol_version = threading.Event(), "a" * 40, "HTTP/1.1"

    def do_GET(self) -> None:
        file = {"type": "file", "path": "train.jsonl", "size": len(self.content), "oid": self.revision}
        data_set = {"id": "my/pairs", "sha": self.revision, "siblings": [{"rfilename": "train.jsonl"}], "tags": []}
        body = json.dumps([file] if "/tree/" in self.path else data_set).encode()
        if "/resolve/" in self.path:
            body = self.content if self.path.endswith(f"/{self.revision}/train.jsonl") else b""
        self.send_response(200 if body else 404)
        headers = {"ETag": '"1"', "X-Repo-Commit": self.revision, "X-Error-Code": "EntryNotFound"}
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and body is self.content and not self.halved.is_set():
            self.wfile.write(body[: len(body) // 2])
            self.halved.set()
            with suppress(OSError):
                self.connection.recv(1)  # until the other side is gone
        elif self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
def test_half_a_download_is_never_used(nmt: Nmt, tmp_path: Path) -> None:
    """Killed half way; without a network then, one sentence tells what to do; with it again all 600 pairs are there."""
    words = ["train", "--data", "my/pairs", "--preset", "tiny", "--config", str(recipe(tmp_path, steps=1))]
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = dict.fromkeys(ELSEWHERE, "") | {"HF_HOME": str(tmp_path / "home")}
        there = place | {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        environment = {name: value for name, value in (os.environ | there).items() if value}
        with subprocess.Popen([sys.executable, "-m", "nmt", *words], cwd=tmp_path, env=environment) as process:
            assert Hub.halved.wait(60)
            process.kill()
        offline = nmt(*words, cwd=tmp_path, **place, HF_ENDPOINT=NOWHERE)
        assert "my/pairs: read 600 pairs, kept 600, dropped 0\n" in told(nmt(*words, cwd=tmp_path, **there))
        server.shutdown()
    assert re.search(
        "my/pairs: no such folder here, and the Hugging Face hub cannot be reached, .* --data FOLDER",
        refused(offline, code=1),
    )


# A model that learned 200 sentences, and lines that it never saw.

UNKNOWN = ["steadily", "contra", "seldom", "zqx vlk jjp", "ho ho ho ho ho ho ho ho", "~" * 28]
BLANK = ["", " ", "\t", "\u00a0", "\u200b", "\ufeff"]
SIGNS = ["-", "...", "***", "1.", UNKNOWN[-1], FAMILY]
SENTENCES = ["Dr. Smith arrived at 3 p.m. on Jan. 5.", 'He said "Stop!" and left.', "It cost $3.50."]
SENTENCES += ["Nobody knew why.", "The end."]
FOX = "The quick brown fox jumps over the lazy dog near the old stone bridge in the early morning light ."
STRANGE = [*UNKNOWN, "Yes.", FOX, "One .", *BLANK, "Two .", *SIGNS, "Three .", " ".join(SENTENCES), *SENTENCES]


@pytest.fixture(scope="module")
def strange(overfitted: Path, nmt: Nmt, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What the model makes of each strange line."""
    (text := tmp_path_factory.mktemp("strange") / "text").write_bytes(joined(STRANGE).encode())
    return best(printed(nmt("translate", text, "-m", overfitted, "--format", "json")))


def test_neighbours_and_their_order_change_no_translation(strange: Found, overfitted: Path, nmt: Nmt) -> None:
    """One at a time, backwards and through a pipe, lines become what they became together in a file."""
    done = nmt("translate", "-", "-m", overfitted, "--batch-tokens", "1", stdin=joined(STRANGE[::-1]).encode())
    assert printed(done) == [found["text"] for found in strange[::-1]]
    assert len({found["text"] for found in strange}) > 15


def test_no_text_is_invented_and_none_is_left_out(strange: Found) -> None:
    """Blank lines stay blank and signs themselves; all others are translated, a paragraph as its five sentences are."""
    nothing = {"score": 0.0, "log_probability": 0.0, "tokens": 0, "flags": []}
    for line, found in zip(STRANGE, strange, strict=True):
        if line in BLANK + SIGNS:
            assert found == nothing | {"text": "" if line in BLANK else line}
        else:
            assert (found["text"].strip() != "", found["tokens"] > 1) == (True, True), line
    whole, *parts = strange[-6:]
    assert whole["text"] == " ".join(part["text"] for part in parts)
    assert whole["tokens"] == sum(part["tokens"] for part in parts)


def test_an_empty_file_has_no_translation(nmt: Nmt, overfitted: Path, tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    assert printed(nmt("translate", tmp_path / "text", "-m", overfitted)) == []


@pytest.fixture(scope="module")
def asked(sources: list[str]) -> list[str]:
    """100 of the sentences that it learned, and the others backwards."""
    return [*sources[:100], *(" ".join(reversed(source.split())) for source in sources[100:])]


@pytest.fixture(scope="module")
def searched(overfitted: Path, asked: list[str], nmt: Nmt) -> dict[str, Found]:
    """Their translations by greedy search and by the default beam."""
    words = ["translate", "-m", overfitted, "--no-split", "--format", "json", "--beam"]
    return {beam: best(printed(nmt(*words, beam, stdin=joined(asked).encode()))) for beam in ("1", "4")}


def test_scores_are_the_model_s_own_and_a_wide_search_wins(
    searched: dict[str, Found], overfitted: Path, asked: list[str], nmt: Nmt, tmp_path: Path
) -> None:
    """With either beam a translation has the likelihood that the model gives to it as a text; none is empty."""
    both = searched["1"][:100] + searched["4"][:100]
    text = write_corpus(tmp_path, train=list(zip(asked[:100] * 2, [found["text"] for found in both], strict=True)))
    words = ["score", text / "train.de", "--force-decode", text / "train.en", "-m", overfitted, "--format", "json"]
    pairs = zip(both, best(printed(nmt(*words))), strict=True)
    same = [(one, other) for one, other in pairs if one["tokens"] == other["tokens"]]
    assert len(same) > 0.95 * len(both)  # the others are cut into other pieces
    for one, other in same:
        assert one["log_probability"] == pytest.approx(other["log_probability"], abs=1e-3)
        assert one["score"] == pytest.approx(one["log_probability"] / ((5 + one["tokens"]) / 6) ** 0.6, rel=1e-4)
    wins = [wide["score"] > narrow["score"] - 1e-4 for narrow, wide in zip(*searched.values(), strict=True)]
    assert sum(wins) >= 0.99 * len(wins) == 198
    assert all(found["text"].strip() for found in searched["1"] + searched["4"])


def test_a_thousand_lines_come_back_in_their_places(
    searched: dict[str, Found], overfitted: Path, asked: list[str], nmt: Nmt, tmp_path: Path
) -> None:
    """1,001 lines, from file to file and through a pipe: the n-th is the translation of the n-th."""
    known = dict(zip(asked[:100], (found["text"] for found in searched["1"]), strict=False))
    lines = ["" if n % 17 == 0 else asked[n // 5 % 100] if n % 5 == 0 else f"{n} ." for n in range(1_001)]
    expected = joined([known.get(line, line) for line in lines]).encode()
    (tmp_path / "in").write_bytes(joined(lines).encode())
    words = ["translate", "-m", overfitted, "--beam", "1"]
    told(nmt(*words, tmp_path / "in", "-o", tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == nmt(*words, stdin=joined(lines).encode()).stdout == expected
    assert len({*known.values()} & {*expected.decode().split("\n")}) > 75


def test_monstrous_lines_cost_no_other_line(overfitted: Path, nmt: Nmt, tmp_path: Path) -> None:
    """Thousands of words, of signs, of letters without a space: 104 lines in and out, and those that were cut are named."""
    monsters = ["word " * 5_000, "." * 4_000, "a," * 3_000, "x" * 20_000]
    (tmp_path / "text").write_text(joined(["A normal line ."] * 50 + monsters + ["Another normal line ."] * 50))
    done = nmt("translate", tmp_path / "text", "-m", overfitted, "--beam", "1")
    found = printed(done)
    assert (len(found), len({*found[:50]}), len({*found[54:]}), found[51]) == (104, 1, 1, monsters[1])
    assert all(100 < len(found[place]) < 40_000 for place in (50, 52, 53))
    assert b"warning: too long for one search, so translated in parts: lines 51, 53, 54\n" in done.stderr


def test_a_pipe_of_both_commands_gives_the_logged_score(overfitted: Path) -> None:
    """On a checkpoint: the BLEU of its validation to the digit, with the same signature, and no warning but of numbers.

    Whether the model gets each line's numbers right depends on the processor it was trained on.
    """
    [logged] = [event for event in events(overfitted) if event["step"] == 200 and "bleu" in event]
    nmt, text = shlex.join([sys.executable, "-m", "nmt"]), shlex.quote(f"{overfitted}/heldout/valid")
    pipe = f"{nmt} translate {text}.en.gz -m {shlex.quote(f'{overfitted}/checkpoints/step-000200')}"
    done = subprocess.run(["bash", "-c", f"{pipe} | {nmt} score - -r {text}.de.gz"], capture_output=True, check=False)
    signed = f"standard input against valid.de.gz: BLEU {logged['bleu']:.2f} (100 lines) {logged['signature']}"
    assert printed(done) == [signed]
    warnings = re.sub(rb"warning: has other numbers than its source: lines? [\d, ]+\n", b"", done.stderr)
    assert (logged["bleu"] > 50, logged["beam"], warnings) == (True, 4, b"")


@pytest.mark.parametrize("count", [1, 3])
def test_texts_of_different_length_have_no_score(nmt: Nmt, tmp_path: Path, count: int) -> None:
    """Not the 100 of the lines that both have, but both counts."""
    (tmp_path / "hyp").write_text("a b c d e\nf g h i j\n")
    (tmp_path / "ref").write_text("".join(["a b c d e\n", "f g h i j\n", "k l m n o\n"][:count]))
    done = nmt("score", tmp_path / "hyp", "-r", tmp_path / "ref")
    assert re.search(rf"hyp has 2 lines.*ref has {count}\b", refused(done))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, demo_pairs: Pairs, nmt: Nmt) -> Begun:
    """Four updates, validated on an empty line and on one that is too long for one search too."""
    root = tmp_path_factory.mktemp("fresh")
    odd = [("A short one .", "Ein kurzer ."), ("", ""), ("word " * 600, "Wort " * 600)]
    data = write_corpus(root / "corpus", train=demo_pairs[:60], valid=odd + demo_pairs[60:68])
    config = recipe(root, steps=4, validate_every=2, warmup=3)
    words: list[str | Path] = ["train", "--data", data, "--preset", "tiny", "--config", config, "--dropout", "0", "-m"]
    return words, root / "model", told(nmt(*words, root / "model"))


def test_odd_validation_text_ends_no_run(fresh: Begun) -> None:
    """All lines are scored, by a model that cannot stop yet too; and one that says the same to all is warned of, once."""
    validated = [event for event in events(fresh[1]) if event["event"] == "validation"]
    assert [(event["step"], event["lines"], event["beam"]) for event in validated] == [(2, 11, 4), (4, 11, 4)]
    assert all(event["perplexity"] == pytest.approx(math.exp(event["nll"])) for event in validated)
    blank, warning = [line for line in fresh[2].splitlines() if line.startswith("warning: ")]
    assert "the valid text: 1 of 11 lines is blank (line 2)" in blank
    assert re.search(r" \d\d% of the validation outputs are the same sentence: .* \(warmup, factor ", warning)


def test_a_model_that_cannot_stop_is_stopped(fresh: Begun, nmt: Nmt) -> None:
    """At 50 pieces more than the source has; those lines are named, and the one without a letter is not."""
    done = nmt("translate", "-m", fresh[1] / "checkpoints/step-000002", "--format=json", stdin=joined(UNKNOWN).encode())
    found = best(printed(done))
    for line, one in zip(UNKNOWN[:-1], found[:-1], strict=True):
        assert "limit" in one["flags"]
        assert 50 < one["tokens"] <= len(line.encode()) + 52  # pieces are bytes at the least; a space before, and EOS
    assert b"ended by the length limit, so perhaps incomplete: lines 1, 2, 3, 4, 5\n" in done.stderr


def test_micro_batches_make_one_batch(fresh: Begun, nmt: Nmt, tmp_path: Path) -> None:
    """The same updates and losses, whether all of an update is computed at once or a sentence at a time."""
    told(nmt(*fresh[0], tmp_path / "model", "--micro-batch-tokens", "30"))
    for one, other in zip(events(fresh[1]), events(tmp_path / "model"), strict=True):
        assert (one["event"], one["step"], one.get("epoch")) == (other["event"], other["step"], other.get("epoch"))
        for name in {"loss", "nll", "valid_loss", "tokens_per_update", "lr"} & one.keys():
            assert other[name] == pytest.approx(one[name], rel=1e-4), name
        assert other.get("padding", 0) < one.get("padding", 1)  # or the batches were the same


def test_a_torn_checkpoint_gives_way_to_the_one_before(fresh: Begun, nmt: Nmt, tmp_path: Path) -> None:
    """Cut to half its length, it is named and passed over; the run ends as before. Finished, it serves no other one."""
    model = Path(shutil.copytree(fresh[1], tmp_path / "model"))
    newest = model / "checkpoints" / "step-000004" / "optimizer.pt"
    os.truncate(newest, newest.stat().st_size // 2)
    again = told(nmt(*fresh[0], model))
    assert re.search(r"warning: \S+step-000004: .*damaged.*; going on from the checkpoint before it\n", again)
    assert re.search(r"going on after update 2, rate 9\.62e-02\n", again)
    assert outcome(model) == outcome(fresh[1])
    before = files(model)
    message = refused(nmt(*fresh[0], model, "--seed", "2", "--vocab-size", "440"))
    assert re.search("holds another run: vocab_size was 450, now 440; seed was 1, now 2[.]", message)
    assert files(model) == before


def test_a_full_disk_is_told_of(fresh: Begun, tmp_path: Path) -> None:
    """Where the weights still fit and Adam's moments do not, nothing half written stays, and the way on is told."""
    words = shlex.join([sys.executable, "-m", "nmt", *map(str, fresh[0]), str(tmp_path / "model"), "--steps", "1"])
    done = subprocess.run(["bash", "-c", f"ulimit -f 100; exec {words}"], capture_output=True, check=False)
    assert "which could not be saved; the same command goes on after update 0, once" in refused(done, code=1)
    assert list((tmp_path / "model" / "checkpoints").iterdir()) == []


def test_a_gpu_that_is_not_there_is_not_replaced(overfitted: Path, nmt: Nmt) -> None:
    done = nmt("translate", "-m", overfitted, "--device", "cuda", stdin=b"Hi.\n", CUDA_VISIBLE_DEVICES="-1")
    assert "--device cuda: PyTorch finds no CUDA device here" in refused(done)


def test_an_exported_model_says_the_same(
    searched: dict[str, Found], overfitted: Path, asked: list[str], nmt: Nmt, tmp_path: Path
) -> None:
    """It is checked as it is written, and line by line afterwards."""
    pytest.importorskip("ctranslate2")
    model = Path(shutil.copytree(overfitted, tmp_path / "model"))
    assert "checked: 100 of 100 have the same greedy translation in fp32\n" in told(nmt("export", "-m", model))
    words = ["translate", "-m", model, "--beam", "1", "--engine", "ctranslate2"]
    found = printed(nmt(*words, stdin=joined([*asked[:100], *BLANK, *SIGNS]).encode()))
    assert found == [*(one["text"] for one in searched["1"][:100]), *("" for _ in BLANK), *SIGNS]
    assert len({*found}) > 90
