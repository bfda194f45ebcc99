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
import urllib.error
import urllib.request
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from http.client import HTTPException
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import transformer_lit
from transformer_lit.batches import Ints, fill_rate, plan_epoch
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
            plain or with .gz behind it, or for a folder of trees.
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

    def __post_init__(self) -> None:
        if self.vocab_size > 1 << 16:
            raise ValueError(
                f"vocab_size={self.vocab_size:,} is too large: ids are kept "
                f"in 16 bits, so at most {1 << 16:,}"
            )
        least = {"vocab_size": 5, "max_tokens": 2, "sample": 1, "pairs": 1}
        for option, smallest in least.items():
            if getattr(self, option) < smallest:
                raise ValueError(f"{option} must be at least {smallest}")
        if self.name == "numbers" and (self.src, self.tgt) != ("en", "de"):
            raise ValueError("the numbers go from src='en' to tgt='de' alone")


# 05_1_data: Is it the right text?
CHUNK = 1 << 20


@contextmanager
def open_text(path: Path) -> Iterator[Any]:
    """A file for reading its bytes, whether it is packed or not.

    Raises:
        ValueError: it is packed and damaged; the message names it.
    """
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is damaged ({error}); copy it again"
        ) from None


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


def cache_folder() -> Path:
    """Where downloads and prepared corpora are kept."""
    standard = Path.home() / ".cache" / "transformer_lit"
    return Path(os.environ.get("TRANSFORMER_LIT_CACHE", standard))


def locked(path: Path) -> AbstractContextManager[Any]:
    """To be entered by one process at a time; it opens when that one ends."""
    import portalocker  # when it is needed

    path.parent.mkdir(parents=True, exist_ok=True)
    return portalocker.Lock(path, timeout=1e6)


def download(address: str, path: Path) -> None:
    """Fetch a file, going on where an earlier try stopped.

    Raises:
        OSError: the address does not answer, or stops before the end.
    """
    part = path.with_name(f"{path.name}.part")
    start = part.stat().st_size if part.exists() else 0
    header = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(address, headers=header)
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        part.unlink()  # nothing is left to go on with: start again
        return download(address, path)
    goes_on = answer.status == 206  # else it starts from the beginning
    size = int(answer.headers.get("Content-Length") or 0) + goes_on * start
    with (
        answer,
        part.open("ab" if goes_on else "wb") as file,
        tqdm(desc=path.name, total=size, unit="B", disable=None) as bar,
    ):
        while block := answer.read(CHUNK):
            bar.update(file.write(block))
        if file.tell() < size:
            raise OSError(f"it stopped after {file.tell():,} bytes")
    os.replace(part, path)


@cache
def corpora() -> dict[str, dict[str, Any]]:
    """For each public corpus its splits, addresses and checksums."""
    file = Path(transformer_lit.__path__[0]) / "corpora.json"
    return json.loads(file.read_text("utf-8"))


def fetch_from_net(corpus: str, name: str) -> Path:
    """Try each address until one gives the file with the right checksum."""
    about, tried = corpora()[corpus], []
    for pattern in about["addresses"]:
        packed = ".gz" if pattern.endswith(".gz") else ""
        target = cache_folder() / "downloads" / f"{name}{packed}"
        address = pattern.format(name=Path(name).name)
        try:
            download(address, target)
            if text_sha256(target) == about["sha256"][name]:
                return target
            tried.append(f"{address} (another file)")
        except (OSError, ValueError, HTTPException) as error:
            tried.append(f"{address} ({error})")
        target.unlink(missing_ok=True)
    raise ValueError(
        f"cannot get {name}: {'; '.join(tried) or 'it has no fixed address'}; "
        f"fetch it by hand ({about['about']}) and let TRANSFORMER_LIT_DATA "
        "name the folder"
    )


def fetch(corpus: str, name: str) -> Path:
    """A file of a corpus: from TRANSFORMER_LIT_DATA, the cache, or the net.

    Raises:
        ValueError: it is not to be had, or is not the file that it should be.
    """
    given = os.environ.get("TRANSFORMER_LIT_DATA")
    path = find_text(Path(given) / name) if given else None
    if path is None:
        stem = cache_folder() / "downloads" / name
        with locked(stem.with_name(f"{stem.name}.lock")):
            path = find_text(stem) or fetch_from_net(corpus, name)
    if text_sha256(path) != corpora()[corpus]["sha256"][name]:
        raise ValueError(
            f"{path} is not the {name} that is wanted, its checksum differs; "
            "remove it or put the right one there"
        )
    return path


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


# 05_1_data: Where the lines come from
def numbers_of(split: str, pairs: int) -> Iterator[int]:
    """The numbers of a split; those outside "train" are held out."""
    rng = random.Random(0)
    test = held_out_sample(2000, seed=0)
    if split == "train":
        yield from (draw_number(rng) for _ in range(pairs))
    elif split == "test":
        yield from test
    else:
        yield from sorted(set(held_out_sample(2000, seed=1)) - set(test))


def number_lines(split: str, pairs: int) -> Iterator[Pair]:
    """Numbers in English and in German words."""
    for number in numbers_of(split, pairs):
        yield english(number).encode(), german(number).encode()


TEST_SETS = {"valid": "wmt13", "test": "wmt14/full"}
"""What sacreBLEU calls newstest2013 and the 3,003 lines of newstest2014."""


def wmt14_lines(split: str, src: str, tgt: str) -> Iterator[Pair]:
    """WMT 2014: training text from `datasets`, an optional extra.

    Raises:
        ValueError: the library is not installed, or a test set not to be had.
    """
    if split in TEST_SETS:
        yield from sacrebleu_lines(TEST_SETS[split], f"{src}-{tgt}")
        return
    try:
        import datasets
    except ImportError:
        raise ValueError(
            "wmt14 needs the library datasets: pip install datasets"
        ) from None
    pair = f"{tgt}-{src}" if src == "en" else f"{src}-{tgt}"
    rows = datasets.load_dataset("wmt/wmt14", pair, split=split, streaming=True)
    for row in rows:
        texts = row["translation"]
        src_line, tgt_line = (" ".join(texts[x].split()) for x in (src, tgt))
        yield src_line.encode(), tgt_line.encode()


def sacrebleu_lines(test_set: str, pair: str) -> Iterator[Pair]:
    """A test set that sacreBLEU knows; it downloads it once."""
    from sacrebleu.utils import get_reference_files, get_source_file

    try:
        source = get_source_file(test_set, pair)
        [reference] = get_reference_files(test_set, pair)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"sacreBLEU cannot get {test_set} {pair} ({error}); try "
            f"`sacrebleu -t {test_set} -l {pair} --echo src` by hand"
        ) from None
    yield from aligned_lines(Path(source), Path(reference))


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


def tree_files(place: Path) -> list[Path]:
    """One file of trees, or all those in a folder.

    Raises:
        ValueError: there is none.
    """
    endings = tuple(
        x + y for x in (".mrg", ".trees", ".tsv") for y in ("", ".gz")
    )
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    files = [file for file in files if file.name.endswith(endings)]
    if not files:
        raise ValueError(f"{place} holds no trees: no file ends with .mrg")
    return files


def trees(file: Path) -> Iterator[Tree]:
    """The trees of a file, one after another."""
    with open_text(file) as lines:
        tokens = (
            token
            for line in lines
            for token in re.findall(r"[()]|[^\s()]+", line.decode("utf-8"))
        )
        for token in tokens:
            if token == ")":
                raise ValueError("a bracket is closed that was not opened")
            if token == "(":
                yield read_tree(tokens)


def tree_lines(place: Path) -> Iterator[Pair]:
    """The words and the labels of every tree in a file or a folder.

    Raises:
        ValueError: a bracket does not match; the message names the file.
    """
    for file in tree_files(place):
        try:
            for tree in trees(file):
                words, labels = linearise(tree)
                yield " ".join(words).encode(), " ".join(labels).encode()
        except (ValueError, IndexError, RecursionError) as error:
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
    splits = config.splits or {}
    if "train" not in splits or not all(map(str.isidentifier, splits)):
        raise ValueError(
            f"corpus {config.name!r} needs splits with plain names, for "
            'example {train = "data/train", valid = "data/valid"}'
        )
    return sorted(splits, key=lambda split: split != "train")


def existing_text(stem: str) -> Path:
    """The file of that name, or a ValueError."""
    path = find_text(Path(stem))
    if path is None:
        raise ValueError(f"{stem} is missing, and so is {stem}.gz")
    return path


def split_files(config: CorpusConfig, split: str) -> tuple[Path, Path]:
    """The source and the target file of a split."""
    languages = config.src, config.tgt
    if config.name == "files":
        src, tgt = (f"{(config.splits or {})[split]}.{x}" for x in languages)
        return existing_text(src), existing_text(tgt)
    about = corpora()[config.name]
    for pair in ("-".join(languages), "-".join(reversed(languages))):
        src, tgt = (
            about["splits"][split].format(pair=pair, lang=x) for x in languages
        )
        if src in about["sha256"] and tgt in about["sha256"] and src != tgt:
            return fetch(config.name, src), fetch(config.name, tgt)
    raise ValueError(f"{config.name} has no text for {'-'.join(languages)}")


def split_lines(config: CorpusConfig, split: str) -> Iterator[Pair]:
    """The pairs of lines of one split, as they stand in the corpus."""
    if config.name == "numbers":
        return number_lines(split, config.pairs)
    if config.name == "wmt14":
        return wmt14_lines(split, config.src, config.tgt)
    if config.name == "wsj":
        return tree_lines(Path((config.splits or {})[split]))
    return aligned_lines(*split_files(config, split))


# 05_1_data: Shards
SHARD = 200_000
"""Lines of a corpus that go into one shard."""


def write_json(path: Path, value: object) -> None:
    """Write JSON, whole or not at all."""
    write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def write_shard(
    stem: Path, ids: "array[int]", lengths: Sequence[int], about: dict[str, Any]
) -> dict[str, Any]:
    """Write `STEM.ids`, `STEM.ends` and, last, their record `STEM.json`.

    Args:
        stem: the path without the ending.
        ids: all sentences, one behind the other, 16 bits each.
        lengths: of source and target in turn.
        about: counts that are kept with it.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    record: dict[str, Any] = {"pairs": len(lengths) // 2, **about}
    for ending, content in (("ids", ids.tobytes()), ("ends", ends.tobytes())):
        write_file(stem.with_name(f"{stem.name}.{ending}"), content)
        record[f"{ending}_sha256"] = hashlib.sha256(content).hexdigest()
    write_json(stem.with_name(f"{stem.name}.json"), record)
    return record


def encode_pair_of_lines(
    config: CorpusConfig, vocabulary: Vocabulary, split: str, pair: Pair
) -> tuple[list[int], list[int]] | str:
    """The ids of both sides, or why the pair cannot be used."""
    reason = fault(pair)
    if reason is not None:
        return reason
    src, tgt = (line.decode("utf-8") for line in pair)
    ids = vocabulary.src_ids(src), vocabulary.tgt_ids(tgt)
    if min(map(len, ids)) == 1:  # only EOS: what was there is no character
        return "empty line"
    if split == "train" and max(map(len, ids)) > config.max_tokens:
        return f"more than {config.max_tokens} tokens"
    return ids


def encode_block(
    config: CorpusConfig,
    vocabulary: Vocabulary,
    split: str,
    block: Sequence[tuple[int, Pair]],
) -> tuple["array[int]", list[int], Counter[str]]:
    """The ids of numbered pairs, their lengths, and what was dropped, and why.

    Raises:
        ValueError: a line outside the training split cannot be used; to drop
            it would shift the references.
    """
    ids, lengths, dropped = array("H"), list[int](), Counter[str]()
    for number, pair in block:
        found = encode_pair_of_lines(config, vocabulary, split, pair)
        if not isinstance(found, str):
            ids.extend([*found[0], *found[1]])
            lengths += map(len, found)
        elif split == "train":
            dropped[found] += 1
        else:
            raise ValueError(f"{split}, line {number}: {found}; mend the line")
    return ids, lengths, dropped


def encode_split(
    config: CorpusConfig, vocabulary: Vocabulary, split: str, folder: Path
) -> list[dict[str, Any]]:
    """Write the shards of a split that are not there yet; all their records."""
    lines = tqdm(split_lines(config, split), f"encode {split}", disable=None)
    numbered = enumerate(lines, start=1)
    records: list[dict[str, Any]] = []
    while block := list(islice(numbered, SHARD)):
        stem = folder / f"{split}-{len(records):05d}"
        done = stem.with_name(f"{stem.name}.json")
        record = json.loads(done.read_text("utf-8")) if done.exists() else {}
        if record.get("lines") != len(block):
            found = encode_block(config, vocabulary, split, block)
            ids, lengths, dropped = found
            about = {"lines": len(block), "dropped": dropped}
            record = write_shard(stem, ids, lengths, about)
        records.append(record)
    return records


def training_text(config: CorpusConfig) -> Iterator[str]:
    """The usable lines of the training split, both languages in turn."""
    for pair in tqdm(split_lines(config, "train"), "read", disable=None):
        if fault(pair) is None:
            src, tgt = (line.decode("utf-8") for line in pair)
            yield src.lower() if config.lowercase_src else src
            yield tgt


def make_vocabulary(config: CorpusConfig, folder: Path) -> Vocabulary:
    """The vocabulary in the folder; it is made if it is not there yet."""
    if config.name == "numbers":
        NumberVocabulary().save(folder)
    elif not (folder / "vocabulary.json").exists():
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
    public = config.name in corpora()
    for split in split_names(config):
        files: Sequence[Path] = ()
        if config.name == "files" or public:
            files = split_files(config, split)
        elif config.name == "wsj":
            files = tree_files(Path((config.splits or {})[split]))
        for path in files:
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


def fill_folder(config: CorpusConfig, about: Any, folder: Path) -> None:
    """Write what a prepared folder lacks; its manifest comes last."""
    vocabulary = make_vocabulary(config, folder)
    splits = {}
    for split in split_names(config):
        records = encode_split(config, vocabulary, split, folder)
        dropped = sum((Counter(r["dropped"]) for r in records), Counter())
        if split != "train":
            keep_text(config, split, folder)
        lines, pairs = (sum(r[x] for r in records) for x in ("lines", "pairs"))
        if not pairs:
            raise ValueError(f"{split}: of {lines} lines no pair can be used")
        splits[split] = {
            "lines": lines,
            "pairs": pairs,
            "dropped": dict(dropped),
            "shards": records,
        }
    names = ["vocabulary.json", "tokenizer.model"]
    names += [
        f"{s}.{x}" for s in splits if s != "train" for x in ("src", "tgt")
    ]
    files = [folder / name for name in names if (folder / name).exists()]
    checksums = {file.name: text_sha256(file) for file in files}
    manifest = {**about, "vocab_size": len(vocabulary), "sha256": checksums}
    write_json(folder / "manifest.json", {**manifest, "splits": splits})


def prepare(config: CorpusConfig) -> Path:
    """Turn a corpus into ids on disk; return their folder.

    The folder's name holds a digest of the options and of the text, so that
    nothing prepared otherwise is ever taken for it. What an interrupted call
    has finished is not done again, and two calls at once take turns.

    Raises:
        ValueError: the corpus is not to be had or is not sound.
    """
    about = {"config": asdict(config), "sources": sources(config)}
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]
    name = f"{config.name}-{config.src}-{config.tgt}-{digest}"
    folder = cache_folder() / "prepared" / name
    if not (folder / "manifest.json").exists():
        with locked(folder / "lock"):
            fill_folder(config, about, folder)
    return folder


# 05_1_data: Opening in no time
def map_file(path: Path, dtype: type[np.integer[Any]]) -> Ints:
    """A file as an array that stays on disk."""
    size = path.stat().st_size // np.dtype(dtype).itemsize
    empty = np.empty(0, dtype)
    return np.memmap(path, dtype, "r", shape=(size,)) if size else empty


def pair_lengths(ends: Ints) -> Ints:
    """Where sentences end to source and target lengths, int32 [n, 2]."""
    return np.diff(ends, prepend=0).astype(np.int32).reshape(-1, 2)


def damaged(file: Path) -> str:
    """What to say of a file that is not what was written."""
    return (
        f"{file} is damaged or missing; remove the folder {file.parent} "
        "and prepare the corpus again"
    )


class EncodedSplit:
    """The pairs of one split, read from disk as they are asked for.

    Args:
        folder: what `prepare` returned.
        split: "train" or another.

    Raises:
        ValueError: there is no such split, or a file of it is cut short.
    """

    def __init__(self, folder: Path, split: str) -> None:
        records = sorted(folder.glob(f"{split}-?????.json"))
        if not records:
            raise ValueError(f"{folder} holds no split {split!r}")
        self.ids, self.ends = list[Ints](), list[Ints]()
        for file in records:
            ids = map_file(file.with_suffix(".ids"), np.uint16)
            ends = map_file(file.with_suffix(".ends"), np.int64)
            pairs = json.loads(file.read_text("utf-8"))["pairs"]
            if len(ends) != 2 * pairs or (pairs and ends[-1] != len(ids)):
                raise ValueError(damaged(file.with_suffix("")))
            self.ids.append(ids)
            self.ends.append(ends)
        self.starts = np.cumsum([0] + [len(ends) // 2 for ends in self.ends])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        """The source and the target ids of a pair, each with its EOS."""
        if not 0 <= index < len(self):
            raise IndexError(f"there is no pair {index}: {len(self)} pairs")
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        first = 2 * (index - int(self.starts[shard]))
        ends = self.ends[shard][max(first - 1, 0) : first + 2].tolist()
        start, middle, end = ends if first else (0, *ends)
        ids = self.ids[shard][start:end].tolist()
        return ids[: middle - start], ids[middle - start :]

    def lengths(self) -> Ints:
        """The source and target lengths of all pairs, int32 [n, 2]."""
        return np.concatenate([pair_lengths(ends) for ends in self.ends])


def check(folder: Path) -> None:
    """Read a prepared folder and compare it with its manifest.

    Raises:
        ValueError: a file is missing or has changed; the message names it.
    """
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    wanted = dict(manifest.get("sha256", {}))
    for split, about in manifest["splits"].items():
        for number, record in enumerate(about["shards"]):
            for ending in ("ids", "ends"):
                name = f"{split}-{number:05d}.{ending}"
                wanted[name] = record[f"{ending}_sha256"]
    for name, checksum in wanted.items():
        file = folder / name
        if not file.exists() or text_sha256(file) != checksum:
            raise ValueError(damaged(file))


# 05_1_data: What was prepared
def summary(folder: Path) -> str:
    """A prepared corpus in a few lines: pairs, dropped ones, tokens."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    lines = [f"{folder}", f"  vocabulary: {manifest['vocab_size']:,} entries"]
    for split, about in manifest["splits"].items():
        data = EncodedSplit(folder, split)
        tokens, rate = tokens_and_fill(data)
        lines.append(
            f"  {split}: {len(data):,} of {about['lines']:,} pairs, "
            f"{tokens[0]:,} + {tokens[1]:,} tokens, fill rate {rate:.1%}"
        )
        for reason, count in sorted(about["dropped"].items()):
            lines.append(f"    dropped: {count:,} ({reason})")
    return "\n".join(lines)


def tokens_and_fill(data: EncodedSplit) -> tuple[list[int], float]:
    """The tokens of both sides, and the fill rate, shard by shard."""
    tokens, places = np.zeros(2, np.int64), 0.0
    for lengths in filter(len, map(pair_lengths, data.ends)):
        plan = plan_epoch(
            lengths, tokens=25_000, positions=4096, seed=0, epoch=0
        )
        tokens += lengths.sum(0)
        places += lengths.sum() / fill_rate(lengths, plan)
    return tokens.tolist(), float(tokens.sum()) / max(places, 1.0)


__all__ = [
    "CHUNK",
    "CorpusConfig",
    "EncodedSplit",
    "Pair",
    "SHARD",
    "TEST_SETS",
    "Tree",
    "aligned_lines",
    "cache_folder",
    "check",
    "corpora",
    "damaged",
    "download",
    "encode_block",
    "encode_pair_of_lines",
    "encode_split",
    "existing_text",
    "fault",
    "fetch",
    "fetch_from_net",
    "fill_folder",
    "find_text",
    "keep_text",
    "linearise",
    "locked",
    "make_vocabulary",
    "map_file",
    "number_lines",
    "numbers_of",
    "open_text",
    "pair_lengths",
    "prepare",
    "read_text",
    "read_tree",
    "sacrebleu_lines",
    "sources",
    "split_files",
    "split_lines",
    "split_names",
    "summary",
    "text_sha256",
    "tokens_and_fill",
    "training_text",
    "tree_files",
    "tree_lines",
    "trees",
    "wmt14_lines",
    "write_json",
    "write_shard",
]
