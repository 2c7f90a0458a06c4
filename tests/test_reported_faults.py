"""Faults that users of other translation toolkits reported in public, met as those users met them: with real processes,
files and pipes. Each docstring names the faults it covers; the other faults are covered next to the code they concern.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Nmt, write_corpus
from tests.data.test_hub import ELSEWHERE
from tests.runs import Pairs, events, of, recipe, train

Run = subprocess.CompletedProcess[bytes]
Found = list[dict[str, Any]]  # the best hypothesis of each line, from JSON


def printed(done: Run) -> list[str]:
    """The lines on stdout of a successful command."""
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stdout or done.stdout.endswith(b"\n")
    return done.stdout.decode().split("\n")[:-1]


def said(done: Run) -> str:
    """The stderr of a successful command that printed nothing."""
    assert printed(done) == []
    return done.stderr.decode()


def refused(done: Run, code: int = 2) -> str:
    """The one-sentence error of a command that failed with this exit code."""
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


# A small corpus of treacherous lines, overfitted, so that the exact translations are known.

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
    """The model, and the stderr of its training. The English side has a BOM, CR LF and no last newline."""
    root = tmp_path_factory.mktemp("by-heart")
    data = write_corpus(root / "a,b. c", train=CORPUS)
    (data / "train.en").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(source for source, _ in CORPUS).encode())
    config = recipe(root, d_model=64, d_ff=128, vocab_size=4_000, steps=110, warmup=40, label_smoothing=0.0)
    words = ["train", "--data", data, "--preset", "tiny", "--config", config, "--dropout", "0", "-m", root / "model"]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # as in a container with one core
    try:
        return root / "model", said(nmt(*words, OMP_NUM_THREADS=""))
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.fixture(scope="module")
def recalled(by_heart: tuple[Path, str], nmt: Nmt) -> dict[str, str]:
    """The translation of each training source, from a file like the training file, in a locale that is not UTF-8."""
    lines = [*(source for source, _ in CORPUS[len(DROPPED) :]), FAMILY]
    (text := by_heart[0].with_name("text")).write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    elsewhere = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    done = nmt("translate", text, "-m", by_heart[0], "--no-split", **elsewhere)
    assert done.stderr == b""
    return dict(zip(lines, printed(done), strict=True))


@pytest.mark.parametrize("kind", KEPT)
def test_treacherous_text_is_learned_and_translated_to_the_character(kind: str, recalled: dict[str, str]) -> None:
    """D1, D2, T2, T3, U4: lines break at LF only, and no character is rewritten, lost or unknown."""
    assert [recalled[source] for source, _ in KEPT[kind]] == [target for _, target in KEPT[kind]]
    assert recalled[FAMILY] == FAMILY  # copied, because it has no letter


def test_a_run_accounts_for_every_pair_and_says_what_it_does(by_heart: tuple[Path, str]) -> None:
    """D3, T1, R6, S1, S2: drops by reason; an adapted vocabulary; seed, device and threads; updates, speed, time left."""
    for line in (
        r"vocabulary: [3-9]\d\d pieces instead of 4,000, .*",
        r"a,b. c: read 20 pairs, kept 15, dropped 5: 2 over 256 pieces, 1 with an empty source, 1 with an empty target, "
        r"1 with a length ratio over 3; control characters became spaces in 9",
        r"model: .* on CPU, 1 thread, .* GiB of memory, fp32; micro-batches of 1,280 tokens; seed 1; .*",
        r"updates: 110 of about 150 target tokens; an epoch has \d+ tokens, or 1 update",
        r"update 100 of 110: loss \d\.\d{3}, [\d,]+ tokens/s, .+ left, lr 1\.25e-02",
    ):
        assert re.search(f"^{line}$", by_heart[1], re.MULTILINE), line


class Hub(BaseHTTPRequestHandler):
    """Serves one data set like the hub; at the first request for its file it sends one half and stalls."""

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
                self.connection.recv(1)  # waits for the other side to leave
        elif self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
def test_half_a_download_is_never_used(nmt: Nmt, tmp_path: Path) -> None:
    """D4: killed half-way, it has all 600 pairs when it is run again."""
    words = ["train", "--data", "my/pairs", "--preset", "tiny", "--config", str(recipe(tmp_path, steps=1))]
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = dict.fromkeys(ELSEWHERE, "") | {"HF_HOME": str(tmp_path / "home")}
        there["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
        environment = {name: value for name, value in (os.environ | there).items() if value}
        with subprocess.Popen([sys.executable, "-m", "nmt", *words], cwd=tmp_path, env=environment) as process:
            assert Hub.halved.wait(60)
            process.kill()
        assert "my/pairs: read 600 pairs, kept 600, dropped 0\n" in said(nmt(*words, cwd=tmp_path, **there))
        server.shutdown()


# A model that learned 200 sentences by heart, and lines that it never saw.

UNKNOWN = ["steadily", "contra", "seldom", "zqx vlk jjp", "ho ho ho ho ho ho ho ho", "~" * 28]
BLANK = ["", " ", "\t", "\u00a0", "\u200b", "\ufeff"]
SIGNS = ["-", "...", "***", "1.", UNKNOWN[-1], FAMILY]
SENTENCES = ["Dr. Smith arrived at 3 p.m. on Jan. 5.", 'He said "Stop!" and left.', "It cost $3.50."]
SENTENCES += ["Nobody knew why.", "The end."]
FOX = "The quick brown fox jumps over the lazy dog near the old stone bridge in the early morning light ."
STRANGE = [*UNKNOWN, "Yes.", FOX, "One .", *BLANK, "Two .", *SIGNS, "Three .", " ".join(SENTENCES), *SENTENCES]


@pytest.fixture(scope="module")
def strange(overfitted: Path, nmt: Nmt, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The translations of STRANGE."""
    (text := tmp_path_factory.mktemp("strange") / "text").write_bytes(joined(STRANGE).encode())
    return best(printed(nmt("translate", text, "-m", overfitted, "--format", "json")))


def test_neighbours_and_their_order_change_no_translation(strange: Found, overfitted: Path, nmt: Nmt) -> None:
    """B1: the same from a file, and one at a time, backwards, through a pipe."""
    done = nmt("translate", "-", "-m", overfitted, "--batch-tokens", "1", stdin=joined(STRANGE[::-1]).encode())
    assert printed(done) == [found["text"] for found in strange[::-1]]
    assert len({found["text"] for found in strange}) > 15


def test_no_text_is_invented_and_none_is_left_out(strange: Found, nmt: Nmt, overfitted: Path) -> None:
    """B4, B7, B9: blank lines and signs are copied; all else is translated, a paragraph sentence by sentence."""
    nothing = {"score": 0.0, "log_probability": 0.0, "tokens": 0, "flags": []}
    for line, found in zip(STRANGE, strange, strict=True):
        if line in BLANK + SIGNS:
            assert found == nothing | {"text": "" if line in BLANK else line}
        else:
            assert (found["text"].strip() != "", found["tokens"] > 1) == (True, True), line
    whole, *parts = strange[-6:]
    assert whole["text"] == " ".join(part["text"] for part in parts)
    assert whole["tokens"] == sum(part["tokens"] for part in parts)
    assert printed(nmt("translate", "-", "-m", overfitted)) == []


def test_a_thousand_lines_come_back_in_their_places(overfitted: Path, sources: list[str], nmt: Nmt, tmp_path: Path) -> None:
    """B5: from file to file and through a pipe, the n-th line is the translation of the n-th."""
    words = ["translate", "-m", overfitted, "--beam", "1"]
    known = dict(zip(sources[:100], printed(nmt(*words, stdin=joined(sources[:100]).encode())), strict=True))
    lines = ["" if n % 17 == 0 else sources[n // 5 % 100] if n % 5 == 0 else f"{n} ." for n in range(1_001)]
    expected = joined([known.get(line, line) for line in lines]).encode()
    (tmp_path / "in").write_bytes(joined(lines).encode())
    said(nmt(*words, tmp_path / "in", "-o", tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == nmt(*words, stdin=joined(lines).encode()).stdout == expected
    assert len({*known.values()} & {*expected.decode().split("\n")}) > 75


def test_monstrous_lines_cost_no_other_line(overfitted: Path, nmt: Nmt, tmp_path: Path) -> None:
    """M1: thousands of words, signs or letters in a line: each line comes back, and those that were cut are named."""
    monsters = ["word " * 5_000, "." * 4_000, "a," * 3_000, "x" * 20_000]
    (tmp_path / "text").write_text(joined(["A normal line ."] * 50 + monsters + ["Another normal line ."] * 50))
    done = nmt("translate", tmp_path / "text", "-m", overfitted, "--beam", "1")
    found = printed(done)
    assert (len(found), len({*found[:50]}), len({*found[54:]}), found[51]) == (104, 1, 1, monsters[1])
    assert all(100 < len(found[place]) < 40_000 for place in (50, 52, 53))
    assert re.search(rb"warning: .*lines 51, 53, 54\n", done.stderr)


def test_a_pipe_of_both_commands_gives_the_logged_score(overfitted: Path) -> None:
    """E1: `nmt translate | nmt score` on a checkpoint gives its logged BLEU and signature."""
    [logged] = [event for event in events(overfitted) if event["step"] == 200 and "bleu" in event]
    nmt, text = shlex.join([sys.executable, "-m", "nmt"]), shlex.quote(f"{overfitted}/heldout/valid")
    pipe = f"{nmt} translate {text}.en.gz -m {shlex.quote(f'{overfitted}/checkpoints/step-000200')}"
    done = subprocess.run(["bash", "-c", f"{pipe} | {nmt} score - -r {text}.de.gz"], capture_output=True, check=False)
    signed = f"standard input against valid.de.gz: BLEU {logged['bleu']:.2f} (100 lines) {logged['signature']}"
    assert printed(done) == [signed]
    # Whether every number comes out right depends on the processor that trained the model.
    warnings = re.sub(rb"warning: has other numbers than its source: lines? [\d, ]+\n", b"", done.stderr)
    assert (logged["bleu"] > 50, logged["beam"], warnings) == (True, 4, b"")


def test_odd_validation_text_ends_no_run(tmp_path: Path, demo_pairs: Pairs) -> None:
    """R1, R7: all lines are scored, even by a model that cannot stop yet; one translation for all lines is warned of."""
    odd = [("A short one .", "Ein kurzer ."), ("", ""), ("word " * 600, "Wort " * 600)]
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:60], valid=odd + demo_pairs[60:68])
    done = train(tmp_path / "model", data, steps=4, validate_every=2, warmup=3)
    validated = of("validation", tmp_path / "model")
    assert [(event["step"], event["lines"], event["beam"]) for event in validated] == [(2, 11, 4), (4, 11, 4)]
    assert all(event["perplexity"] == pytest.approx(math.exp(event["nll"])) for event in validated)
    blank, warning = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert "the valid text: 1 of 11 lines is blank (line 2)" in blank
    assert re.search(r" \d\d% of the validation outputs are the same sentence: .* \(warmup, factor ", warning)


def test_a_gpu_that_is_not_there_is_not_replaced(overfitted: Path, nmt: Nmt) -> None:
    """S1"""
    done = nmt("translate", "-m", overfitted, "--device", "cuda", stdin=b"Hi.\n", CUDA_VISIBLE_DEVICES="-1")
    assert "--device cuda: " in refused(done)
