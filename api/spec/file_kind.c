#include "api/spec/file_kind.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct kind {
    const char *says;
    const char *suffixes[12]; /* up to NULL */
} KINDS[] = {
    { "holds JSON, which no source reads yet: write its texts to a file of their own, as with `jq -r .text`, or name "
      "it "
      ".txt to train on its characters as they are",
      { ".jsonl", ".ndjson", ".json" } },
    { "holds token ids by its name: give it as data.tokens, or name it .txt if it is text", { ".bin", ".tok" } },
    { "is a NumPy array: write its token ids as little-endian uint16 or uint32 (array.tofile) and give that file as "
      "data.tokens",
      { ".npy", ".npz" } },
    { "holds a table, which no source reads yet: write its text column to a file of its own",
      { ".parquet", ".arrow", ".feather", ".orc", ".avro", ".sqlite", ".db", ".xlsx" } },
    { "is compressed: unpack it first", { ".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".lz4" } },
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

const char *file_kind_not_text(const char *path) {
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
        for (size_t i = 0; i < sizeof KINDS[k].suffixes / sizeof *KINDS[k].suffixes && KINDS[k].suffixes[i]; i++)
            if (ends_with(path, KINDS[k].suffixes[i]))
                return KINDS[k].says;
    return NULL;
}
