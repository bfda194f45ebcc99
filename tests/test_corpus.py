"""A corpus on disk: the right text, every line accounted for, whole files."""

import gzip
import hashlib
import http.server
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lit import corpus
from transformer_lit.corpus import (
    CorpusConfig,
    EncodedSplit,
    aligned_lines,
    check,
    corpora,
    fault,
    fetch,
    find_text,
    linearise,
    number_lines,
    open_text,
    prepare,
    read_text,
    split_lines,
    split_names,
    summary,
    text_sha256,
    tree_lines,
    trees,
    wmt14_lines,
)
from transformer_lit.numbers import english, german, is_held_out, read_number
from transformer_lit.tokenizer import load_vocabulary

DATA = os.environ.get("TRANSFORMER_LIT_DATA", "")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own, no data, and small shards."""
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSFORMER_LIT_DATA", raising=False)
    monkeypatch.setattr(corpus, "SHARD", 30)
    return tmp_path / "cache"


def good(start: int, count: int) -> list[tuple[bytes, bytes]]:
    """Number words: 1,000 and what follows, none of them twice."""
    numbers = range(start, start + count)
    return [(english(n).encode(), german(n).encode()) for n in numbers]


def write(folder: Path, split: str, pairs, ending: str = "") -> str:
    """Write pairs of lines as two files; their common stem."""
    for side, language in enumerate(("en", "de")):
        text = b"".join(pair[side] + b"\n" for pair in pairs)
        content = gzip.compress(text) if ending else text
        (folder / f"{split}.{language}{ending}").write_bytes(content)
    return str(folder / split)


def text_corpus(
    folder: Path, train=None, valid=None, **options
) -> CorpusConfig:
    """A corpus of two text files for each split."""
    splits = {
        "valid": write(folder, "valid", valid or good(5000, 7)),
        "train": write(folder, "train", train or good(1000, 100)),
    }
    standard = {"name": "files", "vocab_size": 80, "splits": splits}
    return CorpusConfig(**standard | options)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the one that serves as a lock."""
    files = [file for file in folder.iterdir() if file.name != "lock"]
    return {file.name: file.read_bytes() for file in files}


def one_line(caught) -> str:
    """The message of an error, which must be one line."""
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- From text to ids --------------------------------------------------------


def test_every_pair_comes_back_in_its_order(tmp_path):
    config = text_corpus(tmp_path)
    folder = prepare(config)
    vocabulary = load_vocabulary(folder)
    for split, pairs in (("train", good(1000, 100)), ("valid", good(5000, 7))):
        data = EncodedSplit(folder, split)
        assert len(data) == len(pairs)
        for i, (src, tgt) in enumerate(pairs):
            ids = (
                vocabulary.src_ids(src.decode()),
                vocabulary.tgt_ids(tgt.decode()),
            )
            assert data[i] == ids
        lengths = [
            [len(src), len(tgt)]
            for src, tgt in map(data.__getitem__, range(len(data)))
        ]
        assert data.lengths().tolist() == lengths
        assert data.lengths().dtype == np.int32
    assert len(list(folder.glob("train-*.json"))) == 4  # 100 lines, 30 each
    assert read_text(folder / "valid.tgt") == [
        german(n) for n in range(5000, 5007)
    ]
    assert not (folder / "train.src").exists()


def test_the_manifest_tells_what_was_done(tmp_path):
    config = text_corpus(tmp_path)
    folder = prepare(config)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["config"]["vocab_size"] == manifest["vocab_size"] == 80
    assert set(manifest["sources"]) == {
        f"{split}: {split}.{x}"
        for split in ("train", "valid")
        for x in ("en", "de")
    }
    model = hashlib.sha256((folder / "tokenizer.model").read_bytes())
    assert manifest["sha256"]["tokenizer.model"] == model.hexdigest()
    train = manifest["splits"]["train"]
    assert train["lines"] == train["pairs"] == 100
    assert sum(record["pairs"] for record in train["shards"]) == 100


def test_packing_changes_nothing_but_the_text_does(tmp_path):
    first = prepare(text_corpus(tmp_path))
    for name in ("train.en", "valid.de"):
        file = tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    splits = {s: str(tmp_path / s) for s in ("valid", "train")}
    config = CorpusConfig(name="files", vocab_size=80, splits=splits)
    assert prepare(config) == first
    text = (tmp_path / "train.de").read_bytes()
    (tmp_path / "train.de").write_bytes(text.replace(b"eins", b"zwei", 1))
    assert prepare(config) != first


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 9},
        {"vocab_size": 81},
        {"lowercase_src": True},
        {"sample": 150},
    ],
)
def test_another_option_is_another_folder(tmp_path, change):
    folders = {
        prepare(text_corpus(tmp_path)),
        prepare(text_corpus(tmp_path, **change)),
    }
    assert len(folders) == 2


def test_what_is_prepared_is_not_done_again(tmp_path, monkeypatch):
    config = text_corpus(tmp_path)
    folder = prepare(config)
    monkeypatch.setattr(corpus, "fill_folder", None)
    assert prepare(config) == folder


def test_pieces_are_learned_from_the_training_text_alone(tmp_path):
    first = prepare(text_corpus(tmp_path))
    valid = [("Ω ñ".encode(), "ß".encode())]
    second = prepare(text_corpus(tmp_path, valid=valid))
    models = {contents(data)["tokenizer.model"] for data in (first, second)}
    assert len(models) == 1


def test_the_source_is_lowered_before_learning(tmp_path):
    train = [(src.upper(), tgt) for src, tgt in good(1000, 100)]
    config = text_corpus(tmp_path, train, lowercase_src=True)
    vocabulary = load_vocabulary(prepare(config))
    assert vocabulary.text(vocabulary.src_ids("FORTY TWO")) == "forty two"


def test_ids_must_fit_16_bits():
    assert CorpusConfig(name="files", vocab_size=65_536).vocab_size == 65_536
    with pytest.raises(ValueError, match="65,536") as caught:
        CorpusConfig(name="files", vocab_size=65_537)
    one_line(caught)


# -- Lines that cannot be used -----------------------------------------------

FAULTS = {
    "empty line": (b"", b"eins"),
    "NUL byte": (b"one", b"ei\0ns"),
    "invalid UTF-8": (b"one", "fünf".encode("latin-1")),
    "more than 40 tokens": (b"one " * 60, b"eins"),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("reason", FAULTS)
def test_a_faulty_pair_is_dropped_and_counted(tmp_path, reason, turned):
    pair = FAULTS[reason][::-1] if turned else FAULTS[reason]
    train = [*good(1000, 50), pair, *good(1050, 50), pair]
    folder = prepare(text_corpus(tmp_path, train, max_tokens=40))
    about = json.loads((folder / "manifest.json").read_text())["splits"][
        "train"
    ]
    assert about["dropped"] == {reason: 2}
    assert about["lines"] == 102 and about["pairs"] == 100
    data, vocabulary = EncodedSplit(folder, "train"), load_vocabulary(folder)
    for i, (src, tgt) in enumerate(good(1000, 100)):
        assert vocabulary.text(data[i][0]) == src.decode()
        assert vocabulary.text(data[i][1]) == tgt.decode()
    assert f"dropped: 2 ({reason})" in summary(folder)
    assert "100 of 102 pairs" in summary(folder)


@pytest.mark.parametrize("reason", list(FAULTS)[:3])
def test_a_faulty_line_of_a_test_set_is_refused(tmp_path, reason):
    valid = [*good(5000, 4), FAULTS[reason]]
    config = text_corpus(tmp_path, valid=valid)
    with pytest.raises(ValueError, match=f"valid, line 5: {reason}") as caught:
        prepare(config)
    one_line(caught)


def test_a_long_line_of_a_test_set_is_kept_whole(tmp_path):
    valid = [(b"one " * 60 + b"two", b"eins")]
    folder = prepare(text_corpus(tmp_path, valid=valid, max_tokens=40))
    [src, _] = EncodedSplit(folder, "valid")[0]
    assert len(src) > 60
    assert load_vocabulary(folder).text(src).endswith("one two")


@pytest.mark.parametrize("nothing", ["\u00a0", "\u200b \u2028", "\u3000"])
def test_a_line_of_invisible_characters_is_empty(tmp_path, nothing):
    train = [*good(1000, 100), (nothing.encode(), b"eins")]
    folder = prepare(text_corpus(tmp_path, train))
    about = json.loads((folder / "manifest.json").read_text())["splits"][
        "train"
    ]
    assert about["dropped"] == {"empty line": 1}


def test_exactly_max_tokens_is_not_too_long(tmp_path):
    folder = prepare(text_corpus(tmp_path))
    longest = int(EncodedSplit(folder, "train").lengths().max())
    for limit, dropped in ((longest, False), (longest - 1, True)):
        folder = prepare(text_corpus(tmp_path, max_tokens=limit))
        data = EncodedSplit(folder, "train")
        assert (len(data) < 100) == dropped
        assert data.lengths().max() <= limit


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("shorter", ["en", "de"])
def test_files_of_unequal_length_are_refused(tmp_path, shorter, ending):
    config = text_corpus(tmp_path)
    file = tmp_path / f"train.{shorter}"
    lines = file.read_bytes().split(b"\n")[:90]
    text = b"\n".join(lines) + b"\n"
    file.unlink()
    content = gzip.compress(text) if ending else text
    Path(f"{file}{ending}").write_bytes(content)
    with pytest.raises(ValueError, match="ends before line 91") as caught:
        prepare(config)
    assert f"train.{shorter}" in one_line(caught)


def test_a_line_ends_with_a_line_feed_and_nothing_else(tmp_path):
    odd = "a\u2028b\u0085c\x0bd\x0ce\rf".encode()
    (tmp_path / "x.en").write_bytes(odd + b"\r\nlast")
    (tmp_path / "x.de").write_bytes(b"eins\nzwei\n")
    found = list(aligned_lines(tmp_path / "x.en", tmp_path / "x.de"))
    assert found == [(odd, b"eins"), (b"last", b"zwei")]


@given(st.lists(st.binary(max_size=12).filter(lambda x: b"\n" not in x)))
def test_no_bytes_break_the_reading_of_lines(lines):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for ending in ("en", "de"):
            text = b"".join(line + b"\n" for line in lines)
            (Path(folder) / f"x.{ending}").write_bytes(text)
        found = list(
            aligned_lines(Path(folder) / "x.en", Path(folder) / "x.de")
        )
    assert len(found) == len(lines)
    for (src, tgt), line in zip(found, lines, strict=True):
        assert src == tgt == line.rstrip(b"\r")
        if fault((src, tgt)) is None:
            assert "\0" not in src.decode("utf-8")  # it can be decoded
            assert src.strip()


@pytest.mark.parametrize("cut", [3, 15, -9, -1])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, cut):
    config = text_corpus(tmp_path)
    text = (tmp_path / "train.en").read_bytes()
    (tmp_path / "train.en").unlink()
    packed = tmp_path / "train.en.gz"
    packed.write_bytes(gzip.compress(text)[:cut])
    with pytest.raises(ValueError, match="is damaged") as caught:
        prepare(config)
    assert str(packed) in one_line(caught)


def test_a_packed_file_with_a_wrong_bit_is_an_error(tmp_path):
    packed = bytearray(gzip.compress(b"some text\n" * 100))
    packed[len(packed) // 2] ^= 255
    (tmp_path / "x.gz").write_bytes(packed)
    with pytest.raises(ValueError, match="is damaged"):
        text_sha256(tmp_path / "x.gz")


@pytest.mark.parametrize(
    "splits",
    [
        None,
        {},
        {"valid": "x"},
        {"train": "x", "../x": "x"},
        {"train": "x", "a*": "x"},
    ],
)
def test_splits_that_make_no_sense_are_refused(splits):
    with pytest.raises(ValueError, match="needs splits") as caught:
        prepare(CorpusConfig(name="files", splits=splits))
    one_line(caught)


def test_an_unknown_or_missing_corpus_is_named(tmp_path):
    with pytest.raises(ValueError, match="'wmt99' is unknown"):
        prepare(CorpusConfig(name="wmt99"))
    with pytest.raises(ValueError, match="is missing"):
        prepare(
            CorpusConfig(name="files", splits={"train": str(tmp_path / "no")})
        )
    with pytest.raises(ValueError, match="no text for en-cs"):
        prepare(CorpusConfig(name="multi30k", tgt="cs"))


# -- Interrupted, at once, damaged -------------------------------------------


def prepare_and_die(config: CorpusConfig, count: int) -> None:
    """Prepare, but be killed in the middle of writing file number `count`."""
    write_whole = corpus.write_file

    def write_file(path: Path, content: bytes) -> None:
        nonlocal count
        count -= 1
        if count == 0:
            half = content[: len(content) // 2]
            path.with_name(f"{path.name}.part").write_bytes(half)
            os.kill(os.getpid(), signal.SIGKILL)
        write_whole(path, content)

    corpus.write_file = write_file
    prepare(config)


def fork(target, *arguments) -> multiprocessing.Process:
    """Start a child that need not import torch again."""
    process = multiprocessing.get_context("fork").Process(
        target=target, args=arguments
    )
    process.start()
    return process


needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="needs fork"
)


@needs_fork
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_preparation_killed_again_and_again_gives_the_same_bytes(
    tmp_path, monkeypatch, cache, count
):
    config = text_corpus(tmp_path)
    want = contents(prepare(config))
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "killed"))
    killed = 0
    # each try gets on by count - 1 files, and dies in the next
    for _ in range(20):
        process = fork(prepare_and_die, config, count)
        process.join(300)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        killed += 1
        if count == 1 and killed == 3:  # it never gets on: help it
            break
    assert killed >= 3
    folder = prepare(config)
    assert folder.is_relative_to(tmp_path / "killed")
    found = contents(folder)
    assert {k: v for k, v in found.items() if not k.endswith(".part")} == want
    check(folder)


def test_a_finished_shard_is_not_written_again(tmp_path):
    folder = prepare(text_corpus(tmp_path))
    (folder / "manifest.json").unlink()
    (folder / "train-00002.json").unlink()
    for file in folder.iterdir():
        os.utime(file, (1, 1))  # long ago, however coarse the clock is
    prepare(text_corpus(tmp_path))
    old = {f.name for f in folder.iterdir() if f.stat().st_mtime == 1}
    assert {"train-00001.ids", "tokenizer.model"} <= old
    assert not {"train-00002.ids", "manifest.json"} & old
    check(folder)


def test_a_shard_of_another_size_is_not_taken_over(tmp_path, monkeypatch):
    folder = prepare(text_corpus(tmp_path))
    (folder / "manifest.json").unlink()
    monkeypatch.setattr(corpus, "SHARD", 40)
    prepare(text_corpus(tmp_path))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["splits"]["train"]["lines"] == 100
    shards = manifest["splits"]["train"]["shards"]
    assert [shard["lines"] for shard in shards] == [40, 40, 20]
    check(folder)


def prepare_together(config: CorpusConfig, barrier, busy: Path) -> None:
    """Prepare, and fail if another process is at it at the same time."""
    fill = corpus.fill_folder

    def fill_alone(*arguments):
        busy.mkdir()  # an error if it is there
        time.sleep(0.2)
        fill(*arguments)
        busy.rmdir()

    corpus.fill_folder = fill_alone
    barrier.wait(300)  # a busy machine may take its time
    prepare(config)


@needs_fork
def test_processes_that_prepare_at_once_do_no_harm(tmp_path, monkeypatch):
    config = text_corpus(tmp_path)
    want = contents(prepare(config))
    monkeypatch.setenv("TRANSFORMER_LIT_CACHE", str(tmp_path / "together"))
    barrier = multiprocessing.get_context("fork").Barrier(3)
    arguments = config, barrier, tmp_path / "busy"
    processes = [fork(prepare_together, *arguments) for _ in range(3)]
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert contents(prepare(config)) == want


@pytest.mark.parametrize("length", [0, 1, 7, 30])
@pytest.mark.parametrize("ending", ["ids", "ends"])
def test_a_shard_that_was_cut_is_noticed_when_it_is_opened(
    tmp_path, ending, length
):
    folder = prepare(text_corpus(tmp_path))
    file = folder / f"train-00001.{ending}"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match="train-00001 is damaged") as caught:
        EncodedSplit(folder, "train")
    one_line(caught)
    with pytest.raises(ValueError, match=f"00001.{ending} is damaged"):
        check(folder)


def test_a_changed_byte_is_found_in_every_file(tmp_path):
    folder = prepare(text_corpus(tmp_path))
    check(folder)
    files = set(contents(folder)) - {"manifest.json"}
    files = {name for name in files if not re.search(r"-\d{5}.json", name)}
    assert len(files) == 2 * 5 + 2 + 2  # shards, vocabulary, valid text
    for name in files:
        content = (folder / name).read_bytes()
        wrong = bytearray(content)
        wrong[len(wrong) // 2] ^= 1
        (folder / name).write_bytes(wrong)
        with pytest.raises(ValueError, match=re.escape(name)) as caught:
            check(folder)
        one_line(caught)
        (folder / name).unlink()
        with pytest.raises(ValueError, match=re.escape(name)):
            check(folder)
        (folder / name).write_bytes(content)
    check(folder)


def test_one_split_is_not_taken_for_another(tmp_path):
    pairs = {"train": 100, "valid": 7, "valid_b": 5}
    splits = {s: write(tmp_path, s, good(1000, n)) for s, n in pairs.items()}
    folder = prepare(CorpusConfig(name="files", vocab_size=80, splits=splits))
    assert {s: len(EncodedSplit(folder, s)) for s in pairs} == pairs
    with pytest.raises(ValueError, match="holds no split 'val'"):
        EncodedSplit(folder, "val")


MEMORY = """
import json, re, sys
from pathlib import Path
from transformer_lit import corpus

def peak():  # KiB of this process; ru_maxrss would count its parent's
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])

corpus.SHARD = 5000
config = corpus.CorpusConfig(**json.loads(sys.argv[1]))
before = peak()
folder = corpus.prepare(config)
corpus.summary(folder)
print(before, peak(), len(corpus.EncodedSplit(folder, "train")))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads /proc"
)
def test_memory_does_not_grow_with_the_text(tmp_path):
    peaks = []
    environment = {k: v for k, v in os.environ.items() if "MALLOC" not in k}
    for times in (1, 10):
        folder = tmp_path / str(times)
        folder.mkdir()
        stem = write(folder, "train", good(0, 12_000) * times)
        options = {"name": "files", "vocab_size": 200, "sample": 2000}
        options["splits"] = {"train": stem}
        command = [sys.executable, "-c", MEMORY, json.dumps(options)]
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        before, after, pairs = map(int, answer.stdout.split())
        assert pairs == 12_000 * times
        peaks.append((before, after))
    (_, one), (before, ten) = peaks
    assert ten < 1.1 * one
    # and of what it took itself, not even the text would find a place
    assert ten - before < one - before + 8 * 1024, peaks


# -- Download ----------------------------------------------------------------

TEXT = b"a line of text\n" * 20_000


class Server(http.server.BaseHTTPRequestHandler):
    """Serves TEXT in several ways, which the address names."""

    def do_GET(self):
        way = self.path.split("/")[1]
        self.server.seen.append((way, self.headers.get("Range")))
        text = gzip.compress(TEXT, mtime=0) if way == "packed" else TEXT
        text = b"something else\n" if way == "wrong" else text
        start = 0
        if way == "gone":
            self.send_error(404)
            return
        if way != "stubborn" and (found := self.headers.get("Range")):
            start = int(found[len("bytes=") : -1])
            if start >= len(text):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(text) - start))
        self.end_headers()
        end = len(text) // 2 if way == "broken" and not start else len(text)
        self.wfile.write(text[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine, and a corpus whose file it has."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        found.seen = []
        threading.Thread(
            target=found.serve_forever, args=(0.01,), daemon=True
        ).start()
        about = {
            "about": "see example.org",
            "splits": {"train": "a/text"},
            "sha256": {"a/text": hashlib.sha256(TEXT).hexdigest()},
        }
        monkeypatch.setitem(corpora(), "toy", about)

        def ways(*names: str) -> None:
            root = f"http://127.0.0.1:{found.server_port}"
            about["addresses"] = [
                f"{root}/{way}/{{name}}" + ".gz" * (way == "packed")
                for way in names
            ]

        found.ways = ways
        yield found
        found.shutdown()


@pytest.mark.parametrize("way", ["right", "packed"])
def test_a_file_is_fetched_once(server, cache, way):
    server.ways(way)
    path = fetch("toy", "a/text")
    assert path.is_relative_to(cache)
    assert text_sha256(path) == hashlib.sha256(TEXT).hexdigest()
    assert fetch("toy", "a/text") == path
    assert server.seen == [(way, None)]
    assert not list(cache.rglob("*.part"))


@pytest.mark.parametrize("first", ["wrong", "gone", "broken"])
def test_a_bad_address_leads_to_the_next(server, first):
    server.ways(first, "right")
    assert fetch("toy", "a/text").read_bytes() == TEXT
    assert [way for way, _ in server.seen] == [first, "right"]


def test_a_broken_download_goes_on_where_it_stopped(server):
    server.ways("broken")
    with pytest.raises(ValueError, match="it stopped after"):
        fetch("toy", "a/text")
    assert fetch("toy", "a/text").read_bytes() == TEXT
    half = len(TEXT) // 2
    assert server.seen == [("broken", None), ("broken", f"bytes={half}-")]


def test_a_server_that_cannot_go_on_begins_anew(server):
    server.ways("broken", "stubborn")
    assert fetch("toy", "a/text").read_bytes() == TEXT
    assert server.seen[1][1] is not None  # it was asked for the rest


@pytest.mark.parametrize("content", [TEXT, TEXT + b"and more"])
def test_a_part_with_nothing_left_is_fetched_anew(server, cache, content):
    server.ways("right")
    part = cache / "downloads" / "a" / "text.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    assert fetch("toy", "a/text").read_bytes() == TEXT


def test_without_any_good_address_the_way_by_hand_is_told(server, cache):
    server.ways("wrong", "gone")
    with pytest.raises(ValueError, match="cannot get a/text") as caught:
        fetch("toy", "a/text")
    message = one_line(caught)
    for word in (
        "another file",
        "404",
        "see example.org",
        "TRANSFORMER_LIT_DATA",
    ):
        assert word in message
    assert find_text(cache / "downloads" / "a" / "text") is None


def test_a_corpus_without_address_tells_the_way_by_hand():
    with pytest.raises(ValueError, match="no fixed address") as caught:
        fetch("tatoeba", "tatoeba/train.en-de.en")
    assert "tatoeba.org" in one_line(caught)


def test_a_folder_that_is_given_comes_first(server, tmp_path, monkeypatch):
    server.ways("right")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "text.gz").write_bytes(gzip.compress(TEXT))
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", str(tmp_path))
    assert fetch("toy", "a/text") == tmp_path / "a" / "text.gz"
    assert server.seen == []
    (tmp_path / "a" / "text").write_bytes(TEXT + b"!")
    with pytest.raises(ValueError, match="checksum differs") as caught:
        fetch("toy", "a/text")
    assert str(tmp_path / "a" / "text") in one_line(caught)


# -- Corpora -----------------------------------------------------------------


def test_every_public_corpus_is_described():
    for name, about in corpora().items():
        assert about["about"] and next(iter(about["splits"])) == "train"
        assert split_names(CorpusConfig(name=name)) == list(about["splits"])
        assert all(
            re.fullmatch("[0-9a-f]{64}", x) for x in about["sha256"].values()
        )
        assert len(about["addresses"]) != 1  # a mirror, or none at all
        assert all(x.startswith("https://") for x in about["addresses"])


def test_a_corpus_is_read_in_either_direction(tmp_path, monkeypatch):
    name = "tatoeba/dev.en-de"
    sha256 = {f"{name}.{x}": None for x in ("en", "de")}
    (tmp_path / "tatoeba").mkdir()
    for language, text in (("en", b"one\n"), ("de", b"eins\n")):
        file = tmp_path / f"{name}.{language}"
        file.write_bytes(text)
        sha256[f"{name}.{language}"] = text_sha256(file)
    monkeypatch.setitem(corpora()["tatoeba"], "sha256", sha256)
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", str(tmp_path))
    for src, tgt, pair in (
        ("en", "de", (b"one", b"eins")),
        ("de", "en", (b"eins", b"one")),
    ):
        config = CorpusConfig(name="tatoeba", src=src, tgt=tgt)
        assert list(split_lines(config, "valid")) == [pair]


def test_numbers_are_held_out_and_no_split_meets_another():
    found = {
        split: [
            read_number(src.decode()) for src, _ in number_lines(split, 500)
        ]
        for split in ("train", "valid", "test")
    }
    assert len(found["train"]) == 500 and len(found["test"]) == 2000
    assert len(found["valid"]) > 1800
    assert not any(map(is_held_out, found["train"]))
    assert all(map(is_held_out, found["valid"] + found["test"]))
    assert not set(found["valid"]) & set(found["test"])
    for src, tgt in number_lines("valid", 0):
        assert tgt.decode() == german(read_number(src.decode()))


@pytest.mark.parametrize(
    "name", ["vocab_size", "max_tokens", "pairs", "sample"]
)
def test_an_option_without_sense_is_refused(name):
    for number in (0, -1):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            CorpusConfig(name="files", **{name: number})


@pytest.mark.parametrize(("src", "tgt"), [("de", "en"), ("en", "fr")])
def test_numbers_have_one_direction(src, tgt):
    with pytest.raises(ValueError, match="from src='en' to tgt='de'"):
        CorpusConfig(name="numbers", src=src, tgt=tgt)


def test_a_split_of_which_nothing_is_left_is_refused(tmp_path):
    with pytest.raises(ValueError, match="train: of 100 lines") as caught:
        prepare(text_corpus(tmp_path, max_tokens=2))
    one_line(caught)
    (tmp_path / "valid.en").write_bytes(b"")
    (tmp_path / "valid.de").write_bytes(b"")
    splits = {split: str(tmp_path / split) for split in ("train", "valid")}
    config = CorpusConfig(name="files", vocab_size=80, splits=splits)
    with pytest.raises(ValueError, match="valid: of 0 lines"):
        prepare(config)


def test_a_pair_that_is_not_there_is_an_error(tmp_path):
    data = EncodedSplit(prepare(text_corpus(tmp_path)), "train")
    assert len(list(data)) == 100  # as a list, too, it ends
    for index in (-1, 100, 10_000):
        with pytest.raises(IndexError):
            data[index]


def test_numbers_are_prepared():
    folder = prepare(CorpusConfig(name="numbers", pairs=50))
    assert len(EncodedSplit(folder, "train")) == 50
    assert len(EncodedSplit(folder, "test")) == 2000
    check(folder)
    assert "vocabulary: 66 entries" in summary(folder)


@pytest.mark.parametrize(
    ("src", "tgt", "name"),
    [("en", "de", "de-en"), ("en", "fr", "fr-en"), ("de", "en", "de-en")],
)
def test_wmt14_is_read_from_the_library(monkeypatch, src, tgt, name):
    rows = [{"translation": {src: "a\u2028 b\n", tgt: " c "}}]
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return iter(rows)

    fake = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    assert list(wmt14_lines("train", src, tgt)) == [(b"a b", b"c")]
    options = {"split": "train", "streaming": True}
    assert asked == [(("wmt/wmt14", name), options)]


def test_wmt14_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="pip install datasets") as caught:
        prepare(CorpusConfig(name="wmt14"))
    one_line(caught)


@pytest.mark.parametrize(
    ("split", "name"), [("valid", "wmt13"), ("test", "wmt14/full")]
)
def test_the_test_sets_of_wmt14_come_from_sacrebleu(
    tmp_path, monkeypatch, split, name
):
    import sacrebleu.utils
    from sacrebleu.dataset import DATASETS

    assert {"en-de", "en-fr"} <= set(DATASETS[name].langpairs)
    stem = Path(write(tmp_path, "x", good(1000, 3)))

    def find(language):
        def found(test_set, pair):
            assert (test_set, pair) == (name, "en-de")
            path = str(stem.with_suffix(f".{language}"))
            return path if language == "en" else [path]

        return found

    monkeypatch.setattr(sacrebleu.utils, "get_source_file", find("en"))
    monkeypatch.setattr(sacrebleu.utils, "get_reference_files", find("de"))
    assert list(wmt14_lines(split, "en", "de")) == good(1000, 3)


@pytest.mark.parametrize("error", [OSError("no network"), SystemExit(1)])
def test_a_test_set_that_is_not_to_be_had_is_an_error(monkeypatch, error):
    import sacrebleu.utils

    def fail(*_):
        raise error

    monkeypatch.setattr(sacrebleu.utils, "get_source_file", fail)
    with pytest.raises(ValueError, match="sacrebleu -t wmt14/full") as caught:
        list(wmt14_lines("test", "en", "de"))
    one_line(caught)


# -- Trees -------------------------------------------------------------------

TREE = (
    "( (S (NP-SBJ-1 (NNP Ann) (-NONE- *))\n"
    "    (VP (VBZ sleeps) (NP|X=2 (-NONE- *T*-1)) (PP (IN in) (NP (NN bed))))\n"
    "    (-LRB- -LRB-) (. .) ))\n"
)
WORDS = b"Ann sleeps in bed -LRB- ."
LABELS = b"S NP NNP /NP VP VBZ PP IN NP NN /NP /PP /VP -LRB- . /S"


def test_a_tree_becomes_words_and_labels(tmp_path):
    (tmp_path / "a.mrg").write_text(TREE * 2)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.mrg.gz").write_bytes(gzip.compress(TREE.encode()))
    flat = " ".join(TREE.split())
    (tmp_path / "d.tsv").write_text(f"wsj_0001\t{flat}\nwsj_0002\t{flat}\n")
    (tmp_path / "README.md").write_text("(LDC")
    assert list(tree_lines(tmp_path)) == [(WORDS, LABELS)] * 5
    assert list(tree_lines(tmp_path / "d.tsv")) == [(WORDS, LABELS)] * 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TREE.replace("))))\n", ")))\n"), "opened and never closed"),
        (f"{TREE})", "closed that was not opened"),
        (f"{TREE}()", "repair the file"),
        ("(" * 5000 + ")" * 5000, "repair the file"),
    ],
)
def test_a_bracket_that_does_not_match_is_an_error(tmp_path, text, reason):
    (tmp_path / "bad.mrg").write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        list(tree_lines(tmp_path))
    assert "bad.mrg" in one_line(caught)


def test_a_folder_without_trees_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="holds no trees"):
        list(tree_lines(tmp_path))


def test_trees_are_prepared_and_their_change_is_seen(tmp_path):
    for split, count in (("train", 9), ("valid", 2)):
        (tmp_path / split).mkdir()
        (tmp_path / split / "x.mrg").write_text(TREE * count)
    splits = {split: str(tmp_path / split) for split in ("train", "valid")}
    config = CorpusConfig(name="wsj", vocab_size=50, splits=splits)
    folder = prepare(config)
    assert len(EncodedSplit(folder, "train")) == 9
    assert read_text(folder / "valid.tgt") == [LABELS.decode()] * 2
    (tmp_path / "train" / "x.mrg").write_text(TREE.replace("bed", "tent"))
    assert prepare(config) != folder


# -- Real text, where it lies ------------------------------------------------

needs_data = pytest.mark.skipif(
    not DATA, reason="TRANSFORMER_LIT_DATA names no folder of corpora"
)


@needs_data
def test_the_sample_of_the_treebank_is_read():
    file = Path(DATA) / "wsj-sample" / "wsj_0001-0199.trees.tsv.gz"
    pairs = list(tree_lines(file))
    assert len(pairs) == 3914
    assert sum(len(src.split()) for src, _ in pairs) == 94_084
    labels = {word for _, tgt in pairs for word in tgt.decode().split()}
    assert len({x for x in labels if x.startswith("/")}) == 26
    assert all(fault(pair) is None for pair in pairs)


@needs_data
def test_every_label_that_is_opened_is_closed():
    file = Path(DATA) / "wsj-sample" / "wsj_0001-0199.trees.tsv.gz"
    for tree in trees(file):
        words, labels = linearise(tree)
        open_labels, leaves = [], 0
        closing = {x for x in labels if x.startswith("/")}
        for i, label in enumerate(labels):
            if label.startswith("/"):
                assert open_labels.pop() == label[1:]
            elif f"/{label}" in closing and i + 1 < len(labels):
                open_labels.append(label)
            else:
                leaves += 1
        assert not open_labels and leaves == len(words)


@needs_data
@pytest.mark.parametrize("name", ["multi30k", "newstest"])
def test_real_text_fills_its_rectangles(monkeypatch, name):
    monkeypatch.setattr(corpus, "SHARD", 200_000)
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", DATA)
    folder = prepare(CorpusConfig(name=name, vocab_size=8000))
    check(folder)
    train = summary(folder).splitlines()[2]
    rate = float(re.search(r"fill rate ([\d.]+)%", train)[1])
    assert rate >= 95
    with open_text(folder / "valid.src") as file:
        assert len(EncodedSplit(folder, "valid")) == sum(1 for _ in file)
