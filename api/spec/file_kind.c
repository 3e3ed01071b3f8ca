#include "api/spec/file_kind.h"

#include "api/spec/spec.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct kind {
    const char *says;
    const char *suffixes[12]; /* up to NULL */
} KINDS[] = {
    { "holds one JSON value: write its objects one per line and name it .jsonl, as with `jq -c .[]`, or name it .txt "
      "to train on its characters as they are",
      { ".json" } },
    { "holds token ids by its name: give it as data.tokens, or name it .txt if it is text", { ".bin", ".tok" } },
    { "is a NumPy array: write its token ids as little-endian uint16 or uint32 (array.tofile) and give that file as "
      "data.tokens",
      { ".npy", ".npz" } },
    { "holds a table of a kind that no source reads: write its text column as Parquet or JSON lines",
      { ".orc", ".avro", ".sqlite", ".db", ".xlsx" } },
    { "is an archive: unpack it first, or give a tar archive of samples as format: webdataset",
      { ".zip", ".7z", ".rar" } },
    { "is an image: give the folder that its class's folder is in as data.images",
      { ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff" } },
    { "holds images or labels in MNIST's format: give it as data.idx", { ".idx", "-ubyte" } },
    { "holds weights: give its folder as train.init_from",
      { ".safetensors", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".pkl", ".pickle" } },
    { "is a document with a format of its own: write its plain text to a file",
      { ".pdf", ".doc", ".docx", ".odt", ".epub" } },
};

static int ends_with(const char *path, const char *suffix) {
    size_t n = strlen(path), n_suffix = strlen(suffix);
    return n > n_suffix && strcasecmp(path + n - n_suffix, suffix) == 0;
}

/* The length of a path without the suffix of a compression that the engine unpacks. */
static size_t unpacked_length(const char *path) {
    static const char *const SUFFIXES[] = { ".gz", ".bz2", ".xz", ".zst", ".lz4" };
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++)
        if (ends_with(path, SUFFIXES[i]))
            return strlen(path) - strlen(SUFFIXES[i]);
    return strlen(path);
}

static int unpacked_ends_with(const char *path, const char *suffix) {
    const size_t n = unpacked_length(path), n_suffix = strlen(suffix);
    return n > n_suffix && strncasecmp(path + n - n_suffix, suffix, n_suffix) == 0;
}

const char *spec_text_format(const char *path) {
    static const struct {
        const char *suffix, *format;
    } FORMATS[] = { { ".jsonl", "jsonl" },    { ".ndjson", "jsonl" },    { ".tar", "webdataset" },
                    { ".tgz", "webdataset" }, { ".parquet", "parquet" }, { ".arrow", "arrow" } };
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++)
        if (unpacked_ends_with(path, FORMATS[i].suffix))
            return FORMATS[i].format;
    return "text";
}

const char *file_kind_not_text(const char *path) {
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
        for (size_t i = 0; i < sizeof KINDS[k].suffixes / sizeof *KINDS[k].suffixes && KINDS[k].suffixes[i]; i++)
            if (unpacked_ends_with(path, KINDS[k].suffixes[i]))
                return KINDS[k].says;
    return NULL;
}
