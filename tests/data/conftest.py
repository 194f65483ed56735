"""Fixtures of the data stages' tests."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
from modalities_pipeline.data.raw_index import build_raw_index
from modalities_pipeline.data.tokenized_pack import TokenizedPackSettings, build_tokenized_pack
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

_VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Folder with input files and the exact files that the stages must make of them."""
    return _VECTORS


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """Id of a vector -> its inputs, parameters and expected outcome."""
    return json.loads((_VECTORS / "vectors.json").read_text("utf-8"))


class TableTokenizer(TokenizerWrapper):
    """Gives the ids that a function computes; the end-of-document token may be any string."""

    def __init__(
        self, to_ids: Callable[[str], list[int]], num_ids: int, eod: tuple[str, int], name: str = "table"
    ) -> None:
        self._to_ids = to_ids
        self._num_ids = num_ids
        self._eod = eod
        self._name = name

    def tokenize(self, text: str) -> list[int]:
        return self._to_ids(text)

    def tokenize_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._to_ids(text) for text in texts]

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(map(str, token_ids))

    @property
    def vocab_size(self) -> int:
        return self._num_ids

    @property
    def num_token_ids(self) -> int:
        return max(self._num_ids, self._eod[1] + 1)

    @property
    def special_tokens(self) -> list[str]:
        return [self._eod[0]]

    def find_token_id(self, token: str) -> int | None:
        return self._eod[1] if token == self._eod[0] else None

    def get_token_id(self, token: str) -> int:
        token_id = self.find_token_id(token)
        if token_id is None:
            raise UserError(token)
        return token_id

    def is_special_token_id(self, token_id: int) -> bool:
        return token_id == self._eod[1]

    def fingerprint(self) -> str:
        return f"sha256:{self._name}"

    def save(self, output_dir: Path) -> None:
        (output_dir / "name").write_text(self._name)


@pytest.fixture(scope="session")
def make_tokenizer() -> type[TableTokenizer]:
    """Class of tokenizers made of a function."""
    return TableTokenizer


@pytest.fixture(scope="session")
def utf8_tokenizer() -> TableTokenizer:
    """A tokenizer whose ids are the UTF-8 bytes of a text and whose end-of-document token is LF."""
    return TableTokenizer(lambda text: list(text.encode()), 256, ("\n", 10), "utf8")


@pytest.fixture
def write_pbin(tmp_path: Path) -> Callable[..., Path]:
    """Function (name, documents, token size) -> path of a new `.pbin` file."""

    def write(name: str, documents: Sequence[Sequence[int]], token_size_in_bytes: int = 2) -> Path:
        with PackedFileWriter(tmp_path / name, token_size_in_bytes) as writer:
            for document in documents:
                writer.write_document(document)
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def read_documents() -> Callable[[Path], list[list[int]]]:
    """Function path of a `.pbin` file -> its documents."""

    def read(path: Path) -> list[list[int]]:
        with PackedFile(path) as file:
            return [file.document(position).tolist() for position in range(file.num_documents)]

    return read


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Function (name, lines) -> path of a new file with these lines, each ended by LF."""

    def write(name: str, lines: Sequence[str]) -> Path:
        path = tmp_path / name
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        return path

    return write


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Manifest]:
    """Function (source, tokenizer, settings...) -> manifest; indexes the source if needed and packs it to `x.pbin`."""

    def run(source: Path, tokenizer: TokenizerWrapper, **settings: Any) -> Manifest:
        if "index_path" not in settings:
            settings["index_path"] = tmp_path / f"{source.stem}.idx"
            build_raw_index(source, settings["index_path"], FileExistencePolicy.SKIP)
        values = {"src_path": source, "dst_path": tmp_path / "x.pbin", "jq_pattern": ".text", "eod_token": "\n"}
        manifest = build_tokenized_pack(TokenizedPackSettings(**{**values, **settings}), tokenizer)
        assert manifest is not None
        return manifest

    return run


@pytest.fixture
def talks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with twelve conversations, `talks.jsonl`; current while the test runs."""
    monkeypatch.chdir(tmp_path)
    lines = [
        {
            "id": number,
            "talk": [{"from": "h", "content": "hello cat"}, {"role": "g", "content": f"mat é {'a ' * number}"}],
        }
        for number in range(12)
    ]
    (tmp_path / "talks.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8"
    )
    return tmp_path


@pytest.fixture
def write_talks_config(talks_folder: Path, tiny_wordlevel_dir: Path) -> Callable[..., Path]:
    """Function (changes of the settings, of the top level) -> path of a config of stage instruction_data."""
    pack_config = (Path(__file__).parent / "instruction_pack_config.yaml").read_text("utf-8")
    (talks_folder / "pack.yaml").write_text(pack_config.replace("TOKENIZER", str(tiny_wordlevel_dir)), "utf-8")

    def write(settings: dict[str, Any] | None = None, **changes: Any) -> Path:
        config = {
            "settings": {
                "src_path": "talks.jsonl",
                "dst_path": "out/talk.v1.jsonl",
                "messages_key": "talk",
                "split_config": {"splitting": {"train": 60, "val": 0, "test": 40}, "seed": 3},
                "pbin_creation_config_file_path": "pack.yaml",
                **(settings or {}),
            },
            "instruction_data_transformation": {"role_mapping": {"h": "a", "g": "b"}},
            "jinja2_chat_template": "{% for m in messages %}\n{{ m.role or m['from'] }} {{ m.content }} {% endfor %}",
            "chat_template_data": {},
            **changes,
        }
        path = talks_folder / "config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        return path

    return write
