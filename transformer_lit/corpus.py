"""5.1 Training data and batching.

From book/05_1_data.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import gzip
import hashlib
import json
import os
import random
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

import transformer_lit
from transformer_lit.batches import Ints
from transformer_lit.numbers import (
    NumberVocabulary,
    draw_number,
    english,
    german,
    held_out_sample,
)
from transformer_lit.tokenizer import (
    Vocabulary,
    learn_subwords,
    load_vocabulary,
    write_file,
)


# 05_1_data: A corpus on disk
@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """What to train on, and how text becomes ids.

    Attributes:
        name: a corpus of `corpora.json`, or "numbers", "wmt14", "wsj", or
            "files".
        src, tgt: the languages; files end with them.
        vocab_size: W; the paper has about 37,000 for German.
        max_tokens: a training pair with more ids on a side is dropped.
        lowercase_src: read the source in lower case.
        sample: the lines from which the vocabulary is learned, at most.
        pairs: how many pairs "numbers" generates.
        splits: for "files" and "wsj": where each split lies, for example
            {"train": "data/train"} for data/train.en and data/train.de,
            plain or with .gz behind it.
    """

    name: str
    src: str = "en"
    tgt: str = "de"
    vocab_size: int = 37_000
    max_tokens: int = 256
    lowercase_src: bool = False
    sample: int = 1_000_000
    pairs: int = 100_000
    splits: dict[str, str] | None = None


# 05_1_data: The files, checked
CHUNK = 1 << 20


def open_text(path: Path) -> BinaryIO:
    """A text file for reading bytes, whether it is packed or not."""
    packed = path.suffix == ".gz"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore


def text_sha256(path: Path) -> str:
    """The SHA-256 of a file's text; packing does not change it."""
    digest = hashlib.sha256()
    with open_text(path) as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def find_text(stem: Path) -> Path | None:
    """The file of that name, plain or packed; None where there is none."""
    for path in (stem, stem.with_name(f"{stem.name}.gz")):
        if path.is_file():
            return path
    return None


def existing_text(stem: str) -> Path:
    """The file of that name, or a ValueError."""
    path = find_text(Path(stem))
    if path is None:
        raise ValueError(f"{stem} is missing, and so is {stem}.gz")
    return path


def cache_folder() -> Path:
    """Where downloads and prepared corpora are kept."""
    standard = Path.home() / ".cache" / "transformer_lit"
    return Path(os.environ.get("TRANSFORMER_LIT_CACHE", standard))


def download(address: str, path: Path) -> None:
    """Fetch a file, going on where an earlier try stopped.

    Raises:
        OSError: the address does not answer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address)
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=30) as answer:
        goes_on = answer.status == 206  # else it starts from the beginning
        size = int(answer.headers.get("Content-Length", 0)) or None
        with (
            part.open("ab" if goes_on else "wb") as file,
            tqdm(desc=path.name, total=size, unit="B", disable=None) as bar,
        ):
            while block := answer.read(CHUNK):
                file.write(block)
                bar.update(len(block))
    os.replace(part, path)


@cache
def corpora() -> dict[str, dict[str, Any]]:
    """For each public corpus its splits, addresses and checksums."""
    file = Path(transformer_lit.__path__[0]) / "corpora.json"
    return json.loads(file.read_text("utf-8"))


def fetch(corpus: str, name: str) -> Path:
    """A file of a corpus: from TRANSFORMER_LIT_DATA, the cache, or the net.

    Raises:
        ValueError: it is not to be had, or is not the file that it should be.
    """
    wanted = corpora()[corpus]["sha256"][name]
    given = os.environ.get("TRANSFORMER_LIT_DATA")
    path = find_text(Path(given) / name) if given else None
    path = path or find_text(cache_folder() / "downloads" / name)
    if path is None:
        return fetch_from_net(corpus, name)
    if text_sha256(path) != wanted:
        raise ValueError(
            f"{path} is not the {name} that is wanted, its checksum differs; "
            "remove it or put the right one there"
        )
    return path


def fetch_from_net(corpus: str, name: str) -> Path:
    """Try each address until one gives the file with the right checksum."""
    about, tried = corpora()[corpus], []
    for address in about["addresses"]:
        packed = ".gz" if address.endswith(".gz") else ""
        target = cache_folder() / "downloads" / f"{name}{packed}"
        address = address.format(name=Path(name).name)
        try:
            download(address, target)
            if text_sha256(target) == about["sha256"][name]:
                return target
            tried.append(f"{address} (another file)")
        except (OSError, EOFError) as error:
            tried.append(f"{address} ({error})")
        target.unlink(missing_ok=True)
    raise ValueError(
        f"cannot get {name}: {'; '.join(tried) or 'it has no fixed address'}; "
        f"fetch it by hand ({about['about']}) and let TRANSFORMER_LIT_DATA "
        "name the folder"
    )


# 05_1_data: Line by line
Pair = tuple[bytes, bytes]


def aligned_lines(src: Path, tgt: Path) -> Iterator[Pair]:
    """The lines of two files side by side, without their ends.

    Raises:
        ValueError: one file has more lines; the message says from where on.
    """
    with open_text(src) as src_file, open_text(tgt) as tgt_file:
        both = zip_longest(src_file, tgt_file)
        for number, (src_line, tgt_line) in enumerate(both, start=1):
            if src_line is None or tgt_line is None:
                shorter = src if src_line is None else tgt
                raise ValueError(
                    f"{shorter} ends before line {number}, but its other half "
                    "goes on; give files whose lines belong together"
                )
            yield src_line.rstrip(b"\r\n"), tgt_line.rstrip(b"\r\n")


def fault(pair: Pair) -> str | None:
    """Why a pair of lines cannot be used; None if it can."""
    for line in pair:
        if not line.strip():
            return "empty line"
        if b"\0" in line:
            return "NUL byte"
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return "invalid UTF-8"
    return None


def number_lines(split: str, pairs: int) -> Iterator[Pair]:
    """Numbers in words; those of other splits than "train" are held out."""
    rng = random.Random(0)
    held_out = (
        []
        if split == "train"
        else held_out_sample(2000, seed={"valid": 1, "test": 0}[split])
    )
    for i in range(pairs if split == "train" else len(held_out)):
        number = draw_number(rng) if split == "train" else held_out[i]
        yield english(number).encode(), german(number).encode()


def wmt14_lines(split: str, src: str, tgt: str) -> Iterator[Pair]:
    """WMT 2014 from the library `datasets`, an optional extra.

    Raises:
        ValueError: the library is not installed.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(
            "wmt14 needs the library datasets: pip install "
            "'transformer-lit[wmt]'"
        ) from None
    pair = f"{tgt}-{src}" if src == "en" else f"{src}-{tgt}"
    name = {"valid": "validation"}.get(split, split)
    rows = datasets.load_dataset("wmt14", pair, split=name, streaming=True)
    for row in rows:
        texts = {
            lang: " ".join(text.split()).encode()
            for lang, text in row["translation"].items()
        }
        yield texts[src], texts[tgt]


Tree = list[Any]
"""A label and what is under it: trees or one word; the top has no label."""


def read_tree(tokens: Iterator[str]) -> Tree:
    """What stands between an opening bracket, already read, and its end."""
    tree: Tree = []
    for token in tokens:
        if token == ")":
            return tree
        tree.append(read_tree(tokens) if token == "(" else token)
    raise ValueError("a bracket is opened and never closed")


def linearise(tree: Tree) -> tuple[list[str], list[str]]:
    """The words of a tree, and its labels: NP opens a phrase, /NP ends it.

    As in the code that the authors released, a word is stood for by its part
    of speech. Empty elements and what marks a label's function are left out.
    """
    label, *rest = tree if isinstance(tree[0], str) else ("", *tree)
    if label == "-NONE-":
        return [], []
    if isinstance(rest[0], str):
        return [rest[0]], [label]
    words, labels = [], []
    for child in rest:
        more_words, more_labels = linearise(child)
        words += more_words
        labels += more_labels
    label = re.split("[-=|]", label)[0]
    if words and label:
        labels = [label, *labels, f"/{label}"]
    return words, labels


def tree_lines(folder: Path) -> Iterator[Pair]:
    """The words and the labels of every tree in a folder of files.

    Raises:
        ValueError: a bracket does not match; the message names the file.
    """
    for file in sorted(folder.rglob("*.*")):
        with open_text(file) as lines:
            text = lines.read().decode("utf-8")
        tokens = iter(re.findall(r"[()]|[^\s()]+", text))
        try:
            for token in tokens:
                if token == "(":
                    words, labels = linearise(read_tree(tokens))
                    yield " ".join(words).encode(), " ".join(labels).encode()
        except (ValueError, IndexError) as error:
            raise ValueError(f"{file}: {error}; repair the file") from None


def split_names(config: CorpusConfig) -> list[str]:
    """The splits of a corpus; the training split comes first.

    Raises:
        ValueError: the corpus is unknown, or its splits are not given.
    """
    if config.name in corpora():
        return list(corpora()[config.name]["splits"])
    if config.name in ("numbers", "wmt14"):
        return ["train", "valid", "test"]
    if config.name not in ("files", "wsj"):
        known = ", ".join(sorted({*corpora(), "numbers", "wmt14", "wsj"}))
        raise ValueError(
            f"corpus name={config.name!r} is unknown: take {known} or files"
        )
    if not config.splits or "train" not in config.splits:
        raise ValueError(
            f"corpus {config.name!r} needs splits, for example "
            '{train = "data/train", valid = "data/valid"}'
        )
    return sorted(config.splits, key=lambda split: split != "train")


def split_lines(config: CorpusConfig, split: str) -> Iterator[Pair]:
    """The pairs of lines of one split, as they stand in the corpus."""
    if config.name == "numbers":
        return number_lines(split, config.pairs)
    if config.name == "wmt14":
        return wmt14_lines(split, config.src, config.tgt)
    if config.name == "wsj":
        return tree_lines(Path((config.splits or {})[split]))
    src, tgt = split_files(config, split)
    return aligned_lines(src, tgt)


def split_files(config: CorpusConfig, split: str) -> tuple[Path, Path]:
    """The source and the target file of a split."""
    if config.name == "files":
        stem = (config.splits or {})[split]
        src, tgt = f"{stem}.{config.src}", f"{stem}.{config.tgt}"
        return existing_text(src), existing_text(tgt)
    pattern = corpora()[config.name]["splits"][split]
    pair = f"{config.src}-{config.tgt}"
    names = [pattern.format(pair=pair, lang=lang) for lang in pair.split("-")]
    for name in names:
        if name not in corpora()[config.name]["sha256"]:
            raise ValueError(f"{config.name} has no {pair}: there is no {name}")
    return fetch(config.name, names[0]), fetch(config.name, names[1])


# 05_1_data: Shards
SHARD = 50_000
"""Lines of a corpus that go into one shard."""


def write_json(path: Path, value: object) -> None:
    """Write JSON, whole or not at all."""
    write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def write_shard(
    stem: Path, pairs: Sequence[tuple[list[int], list[int]]], about: Any
) -> dict[str, Any]:
    """Write pairs of ids as `STEM.ids`, `STEM.ends` and, last, `STEM.json`.

    Args:
        stem: the path without the ending.
        pairs: source and target ids.
        about: counts that are kept with it.
    """
    sequences = [ids for pair in pairs for ids in pair]
    files = {
        "ids": np.array([i for ids in sequences for i in ids], np.uint16),
        "ends": np.array([len(ids) for ids in sequences], np.int64).cumsum(),
    }
    record = {"pairs": len(pairs), **about}
    for ending, values in files.items():
        content = values.tobytes()
        write_file(stem.with_name(f"{stem.name}.{ending}"), content)
        record[f"{ending}_sha256"] = hashlib.sha256(content).hexdigest()
    write_json(stem.with_name(f"{stem.name}.json"), record)
    return record


def encode_block(
    config: CorpusConfig,
    vocabulary: Vocabulary,
    split: str,
    block: Sequence[Pair],
    start: int,
) -> tuple[list[tuple[list[int], list[int]]], Counter[str]]:
    """Pairs of lines to pairs of ids, and how many were dropped, and why.

    Raises:
        ValueError: a line outside the training split cannot be used; to drop
            it would shift the references.
    """
    pairs, dropped = [], Counter[str]()
    for number, pair in enumerate(block, start=start):
        reason = fault(pair)
        if reason is None:
            src, tgt = (line.decode("utf-8") for line in pair)
            ids = vocabulary.src_ids(src), vocabulary.tgt_ids(tgt)
            if split != "train" or max(map(len, ids)) <= config.max_tokens:
                pairs.append(ids)
                continue
            reason = f"more than {config.max_tokens} tokens"
        if split != "train":
            raise ValueError(f"{split}, line {number}: {reason}; mend the line")
        dropped[reason] += 1
    return pairs, dropped


def encode_split(
    config: CorpusConfig, vocabulary: Vocabulary, split: str, folder: Path
) -> list[dict[str, Any]]:
    """Write the shards of a split that are not there yet; all their records."""
    lines, start = split_lines(config, split), 1
    records: list[dict[str, Any]] = []
    with tqdm(desc=f"encode {split}", unit=" lines", disable=None) as bar:
        while block := list(islice(lines, SHARD)):
            stem = folder / f"{split}-{len(records):05d}"
            done = stem.with_name(f"{stem.name}.json")
            if done.exists():
                records.append(json.loads(done.read_text("utf-8")))
            else:
                pairs, dropped = encode_block(
                    config, vocabulary, split, block, start
                )
                about = {"lines": len(block), "dropped": dropped}
                records.append(write_shard(stem, pairs, about))
            start += len(block)
            bar.update(len(block))
    return records


def training_text(config: CorpusConfig) -> Iterator[str]:
    """The usable lines of the training split, both languages in turn."""
    lines = split_lines(config, "train")
    for pair in tqdm(lines, desc="read", unit=" lines", disable=None):
        if fault(pair) is None:
            src, tgt = (line.decode("utf-8") for line in pair)
            yield src.lower() if config.lowercase_src else src
            yield tgt


def make_vocabulary(config: CorpusConfig, folder: Path) -> Vocabulary:
    """The vocabulary in the folder; it is made if it is not there yet."""
    if not (folder / "vocabulary.json").exists():
        if config.name == "numbers":
            NumberVocabulary().save(folder)
        else:
            learn_subwords(
                training_text(config),
                config.vocab_size,
                sample=config.sample,
                lowercase_src=config.lowercase_src,
            ).save(folder)
    return load_vocabulary(folder)


def sources(config: CorpusConfig) -> dict[str, str]:
    """The checksums of the text files that a corpus is read from."""
    checksums = {}
    if config.name == "files" or config.name in corpora():
        for split in split_names(config):
            for path in split_files(config, split):
                name = path.name.removesuffix(".gz")
                checksums[f"{split}: {name}"] = text_sha256(path)
    return checksums


def keep_text(config: CorpusConfig, split: str, folder: Path) -> None:
    """Write a split's text as well: `SPLIT.src` and `SPLIT.tgt`."""
    pairs = list(split_lines(config, split))
    for side, ending in enumerate(("src", "tgt")):
        lines = b"".join(pair[side] + b"\n" for pair in pairs)
        write_file(folder / f"{split}.{ending}", lines)


def read_text(file: Path) -> list[str]:
    """The lines of a text file."""
    return file.read_text("utf-8").split("\n")[:-1]


def prepare(config: CorpusConfig) -> Path:
    """Turn a corpus into ids on disk; return their folder.

    The folder's name holds a digest of the options and of the text, so that
    nothing prepared otherwise is ever taken for it. What an interrupted call
    has finished is not done again.

    Raises:
        ValueError: the corpus is not to be had or is not sound.
    """
    about = {"config": asdict(config), "sources": sources(config)}
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]
    name = f"{config.name}-{config.src}-{config.tgt}-{digest}"
    folder = cache_folder() / "prepared" / name
    if (folder / "manifest.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = make_vocabulary(config, folder)
    splits = {}
    for split in split_names(config):
        records = encode_split(config, vocabulary, split, folder)
        dropped = sum((Counter(r["dropped"]) for r in records), Counter())
        if split != "train":
            keep_text(config, split, folder)
        splits[split] = {
            "lines": sum(record["lines"] for record in records),
            "pairs": sum(record["pairs"] for record in records),
            "dropped": dict(dropped),
            "shards": records,
        }
    manifest = {**about, "vocab_size": len(vocabulary), "splits": splits}
    write_json(folder / "manifest.json", manifest)
    return folder


class EncodedSplit:
    """The pairs of one split, read from disk as they are asked for.

    Args:
        folder: what `prepare` returned.
        split: "train" or another.
    """

    def __init__(self, folder: Path, split: str) -> None:
        stems = sorted(folder.glob(f"{split}-*.json"))
        if not stems:
            raise ValueError(f"{folder} holds no split {split!r}")
        self.ids = [self.open(stem, "ids", np.uint16) for stem in stems]
        self.ends = [self.open(stem, "ends", np.int64) for stem in stems]
        self.starts = np.cumsum([0] + [len(ends) // 2 for ends in self.ends])

    @staticmethod
    def open(stem: Path, ending: str, dtype: Any) -> Ints:
        """A file of a shard as an array that stays on disk."""
        path = stem.with_suffix(f".{ending}")
        empty = path.stat().st_size == 0
        return np.empty(0, dtype) if empty else np.memmap(path, dtype, "r")

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        """The source and the target ids of a pair, each with its EOS."""
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        first = 2 * (index - int(self.starts[shard]))
        ends = self.ends[shard][max(first - 1, 0) : first + 2].tolist()
        start, middle, end = ends if first else (0, *ends)
        ids = self.ids[shard][start:end].tolist()
        return ids[: middle - start], ids[middle - start :]

    def lengths(self) -> Ints:
        """The source and target lengths of all pairs, int32 [n, 2]."""
        found = [np.diff(ends, prepend=0) for ends in self.ends]
        return np.concatenate(found).astype(np.int32).reshape(-1, 2)


__all__ = [
    "CHUNK",
    "CorpusConfig",
    "EncodedSplit",
    "Pair",
    "SHARD",
    "Tree",
    "aligned_lines",
    "cache_folder",
    "corpora",
    "download",
    "encode_block",
    "encode_split",
    "existing_text",
    "fault",
    "fetch",
    "fetch_from_net",
    "find_text",
    "keep_text",
    "linearise",
    "make_vocabulary",
    "number_lines",
    "open_text",
    "prepare",
    "read_text",
    "read_tree",
    "sources",
    "split_files",
    "split_lines",
    "split_names",
    "text_sha256",
    "training_text",
    "tree_lines",
    "wmt14_lines",
    "write_json",
    "write_shard",
]
