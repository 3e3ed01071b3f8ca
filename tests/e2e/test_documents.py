"""One text as a file, JSON lines and a WebDataset: the same weights; and what is wrong with documents."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile

import pytest

from service_fixture import BIN, ROOT

sys.path.insert(0, str(ROOT / "build/arrow"))  # where ./dev arrow puts it
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

needs_arrow = pytest.mark.skipif(not pyarrow or not (BIN.parent / "lib/libtrainyard_arrow.so").exists(),
                                 reason="this build has no Apache Arrow: ./dev arrow")
TOKENIZER = ROOT / "tests/engine/tokenizers/llama3.json"


def uri(path):
    return f"file://{path}"


def documents_of(text, n=37):
    """Cut within lines and words, but not within a character."""
    size = -(-len(text) // n)
    return [text[at:at + size] for at in range(0, len(text), size)]


def lines_of(documents, **more):
    return "".join(json.dumps({"id": i, "text": text, **more}) + "\n" for i, text in enumerate(documents)).encode()


def tar_of(path, files):
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@pytest.fixture(scope="module")
def forms(text_file, tmp_path_factory):
    """{name: data.text without a tokenizer}, all with the same text"""
    place = tmp_path_factory.mktemp("documents")
    text = text_file.read_text()
    documents = documents_of(text)
    (place / "a.jsonl").write_bytes(lines_of(documents[:20]))
    (place / "b.jsonl.gz").write_bytes(gzip.compress(lines_of(documents[20:])))
    (place / "body.jsonl.bz2").write_bytes(bz2.compress("".join(json.dumps({"a": {"b": d}}) + "\n" for d in documents).encode()))
    (place / "whole.txt.xz").write_bytes(lzma.compress(text.encode()))
    tar_of(place / "samples.tar", [(f"{i:04}.txt", d.encode()) for i, d in enumerate(documents)])
    tar_of(place / "json.tar", [(f"x/{i:04}.{kind}", data) for i, d in enumerate(documents) for kind, data in
                                (("cls", b"1"), ("json", json.dumps({"text": d}).encode()))])
    return {
        "text": {"files": [uri(text_file)]},
        "compressed": {"files": [uri(place / "whole.txt.xz")]},
        "jsonl": {"files": [uri(place / "a.jsonl"), uri(place / "b.jsonl.gz")]},
        "nested": {"files": [uri(place / "body.jsonl.bz2")], "document": "a.b"},
        "webdataset": {"files": [uri(place / "samples.tar")]},
        "json of samples": {"files": [uri(place / "json.tar")], "document": "json.text"},
    }


@pytest.mark.parametrize("tokenizer", ["char", "byte"])
def test_one_text_in_every_format_gives_the_same_weights(shared_service, tiny, forms, tokenizer):
    """Byte-pair tokens are not cut at the ends of documents either, but at those of files, which these differ in."""
    jobs = {}
    for name, data in forms.items():
        if (name, tokenizer) == ("compressed", "byte"):  # any bytes are text
            continue
        spec = tiny(steps=6, data=2)
        spec["data"] = {"text": {**data, "tokenizer": tokenizer, "validation_fraction": 0.1}}
        jobs[name] = shared_service.submit(spec)
    weights = {name: shared_service.wait_end(job)["weights_sha256"] for name, job in jobs.items()}
    assert len(set(weights.values())) == 1, weights
    spec = shared_service.json("get", jobs["nested"])["spec"]["data"]["text"]
    assert (spec["format"], spec["document"]) == ("jsonl", "a.b")


def test_a_separator_becomes_the_token_of_a_byte_pair_tokenizer(tmp_path):
    """Each `<|end_of_text|>` is one token, at the same places as in a text that contains it."""
    documents = ["One document.", "Another document,\n of two lines.", ""]
    (tmp_path / "d.jsonl").write_bytes(lines_of(documents))
    (tmp_path / "d.txt").write_text("".join(d + "<|end_of_text|>" for d in documents))

    def tokens_of(name, *options):
        subprocess.run([BIN / "trainyard-train", "tokenize", tmp_path / name, "--tokenizer", TOKENIZER, "--out",
                        tmp_path / "out.bin", *options], check=True, capture_output=True)
        return (tmp_path / "out.bin").read_bytes()

    separated = tokens_of("d.jsonl", "--separator", "<|end_of_text|>")
    assert separated == tokens_of("d.txt") != tokens_of("d.jsonl")


def test_validation_files_give_the_validation_data_and_replace_the_fraction(shared_service, tiny, tmp_path):
    (tmp_path / "train.jsonl").write_bytes(lines_of(["abcd" * 100, "dcba" * 100]))
    (tmp_path / "held.jsonl").write_bytes(lines_of(["abcd" * 50]))
    spec = tiny(steps=20)
    spec["train"]["eval"] = {"every": 0}
    spec["data"] = {"text": {"files": [uri(tmp_path / "train.jsonl")], "validation": [uri(tmp_path / "held.jsonl")]}}
    spec["checkpoint"]["keep_best"] = 1
    job = shared_service.submit(spec)
    shared_service.wait_end(job)
    assert 20 in shared_service.metric(job, "validation_loss")
    spec["data"]["text"]["validation_fraction"] = 0.1
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = shared_service.cli("validate", tmp_path / "spec.json", status=2)
    assert "data.text.validation_fraction: cannot be given with validation" in done.stderr + done.stdout


def refused(service, tiny, folder, text, says):
    spec = tiny()
    spec["data"] = {"text": text}
    (folder / "spec.json").write_text(json.dumps(spec))
    done = service.cli("validate", folder / "spec.json", status=2)
    assert says in done.stderr + done.stdout


@pytest.mark.parametrize("text, says", [
    ({"files": ["a.jsonl"], "document": "body"}, "data.text.files[0]: the data file '{}/a.jsonl': line 1 has no field 'body'; it has 'id', 'text'"),
    ({"files": ["cut.jsonl"]}, "data.text.files[0]: the data file '{}/cut.jsonl': line 2 is not JSON: "),
    ({"files": ["a.jsonl", "a.txt"], "format": "text"}, "data.text.files[0]: 'a.jsonl' is jsonl by its name, and the format is text"),
    ({"files": ["a.txt"], "format": "webdataset"}, "data.text.files[0]: the data file '{}/a.txt' cannot be read: "),
    ({"files": ["a.txt"], "document": "text"}, "data.text.document: has no effect with format `text`"),
    ({"files": ["a.orc"]}, "data.text.files[0]: 'a.orc' holds a table of a kind that no source reads"),
    ({"files": ["a.json.gz"]}, "data.text.files[0]: 'a.json.gz' holds one JSON value"),
], ids=["field", "cut", "two formats", "not tar", "field of text", "orc", "json"])
def test_what_is_wrong_with_documents_is_said_before_a_job_is_stored(shared_service, tiny, tmp_path, text, says):
    for name in ("a.jsonl", "a.txt", "a.orc", "a.json.gz"):
        (tmp_path / name).write_bytes(lines_of(["abcd" * 100]))
    (tmp_path / "cut.jsonl").write_bytes(lines_of(["abcd" * 100, "ab"])[:-5])
    text = {**text, "files": [uri(tmp_path / name) for name in text["files"]]}
    refused(shared_service, tiny, tmp_path, text, says.format(tmp_path))


# ---- tables ----

@pytest.fixture(scope="module")
def tables(text_file, tmp_path_factory):
    """{name: data.text without a tokenizer}, all with the same text"""
    place = tmp_path_factory.mktemp("tables")
    documents = documents_of(text_file.read_text())
    table = pyarrow.table({"id": list(range(len(documents))), "text": documents,
                           "meta": [{"body": d, "n": 1} for d in documents],
                           "word": pyarrow.array(documents).dictionary_encode(),
                           "large": pyarrow.array(documents, pyarrow.large_string())})
    pyarrow.parquet.write_table(table, place / "rows.parquet", row_group_size=10, compression="zstd")
    pyarrow.parquet.write_table(table.slice(0, 11), place / "0.parquet")
    pyarrow.parquet.write_table(table.slice(11), place / "1.parquet")
    with pyarrow.OSFile(str(place / "stream.arrow"), "wb") as f, pyarrow.ipc.new_stream(f, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)  # as `datasets` writes
    with pyarrow.OSFile(str(place / "file.arrow"), "wb") as f, pyarrow.ipc.new_file(f, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return {
        "text": {"files": [uri(text_file)]},
        "parquet": {"files": [uri(place / "rows.parquet")]},
        "two files": {"files": [uri(place / "0.parquet"), uri(place / "1.parquet")]},
        "struct": {"files": [uri(place / "rows.parquet")], "document": "meta.body"},
        "large": {"files": [uri(place / "rows.parquet")], "document": "large"},
        "dictionary": {"files": [uri(place / "rows.parquet")], "document": "word"},
        "stream": {"files": [uri(place / "stream.arrow")]},
        "file": {"files": [uri(place / "file.arrow")], "document": "meta.body"},
        "words of a file": {"files": [uri(place / "file.arrow")], "document": "word"},
    }


@needs_arrow
def test_tables_give_the_weights_of_their_text(shared_service, tiny, tables):
    jobs = {}
    for name, data in tables.items():
        spec = tiny(steps=6)
        spec["data"] = {"text": {**data, "validation_fraction": 0.1}}
        jobs[name] = shared_service.submit(spec)
    weights = {name: shared_service.wait_end(job)["weights_sha256"] for name, job in jobs.items()}
    assert len(set(weights.values())) == 1, weights


@needs_arrow
@pytest.mark.parametrize("column, says", [
    ("body", "has no column 'body'; it has 'id', 'text', 'none', 'meta'"),
    ("id", "has a column of int64, not of strings"),
    ("none", "row 2 has no text"),
    ("meta.n", "has no field 'n' in its column 'meta'"),
    ("text.n", "has a column 'text' that has no fields"),
])
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_column_that_is_no_text_is_named(shared_service, tiny, tmp_path, kind, column, says):
    table = pyarrow.table({"id": [1, 2], "text": ["a", "b"], "none": ["a", None], "meta": [{"body": "a"}, {"body": "b"}]})
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.OSFile(str(path), "wb") as f, pyarrow.ipc.new_stream(f, table.schema) as writer:
            writer.write_table(table)
    refused(shared_service, tiny, tmp_path, {"files": [uri(path)], "document": column}, f"'{path}' {says}")


@needs_arrow
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_damaged_table_is_refused(shared_service, tiny, tmp_path, kind):
    """Whatever a damaged file says of its lengths, the worker reads nothing outside of its buffers."""
    path = tmp_path / f"rows.{kind}"
    for what in (b"not a table", b"PAR1" + b"\xff" * 100 + b"PAR1", b"ARROW1\0\0" + b"\xff" * 100):
        path.write_bytes(what)
        refused(shared_service, tiny, tmp_path, {"files": [uri(path)]}, f"data.text.files[0]: the data file '{path}'")


def test_a_table_without_the_plugin_is_refused_with_what_to_do(tmp_path, tiny):
    """A copy of the program, beside which there is no plugin."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/trainyard-train"
    program.write_bytes((BIN / "trainyard-train").read_bytes())
    program.chmod(0o755)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    spec = tiny(steps=1)
    spec["data"] = {"text": {"files": [uri(tmp_path / "rows.parquet")]}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([program, tmp_path / "spec.json"], capture_output=True, text=True)
    assert done.returncode == 2 and "Parquet and Arrow files need a library" in done.stderr and "./dev arrow" in done.stderr
