/* A file of documents as the text that they make: plain text, JSON lines, a WebDataset, or a column of a Parquet or
 * Arrow file.
 *
 *     struct text_format format = { .form = TEXT_JSONL, .document = "text", .separator = "<|endoftext|>" };
 *     TRY(text_file_open(&f, &format, roots, path, e));
 *
 * The text is that of the documents in their order in the file, each followed by the separator. The same documents make
 * the same text in every form. A plain file is one document.
 *
 * A plain file that is not compressed, without a separator, is opened as it is. Otherwise `f` is a copy that has no
 * name: in memory, up to TEXT_IN_MEMORY bytes, or on the disk if `folder` is given. Error sentences about the copy have
 * the file's path, and count the bytes of its text. Private to this folder. */
#ifndef ENGINE_DATA_TEXT_FILE_H
#define ENGINE_DATA_TEXT_FILE_H

#include "base/status.h"
#include "engine/data/data_file.h"

#include <stdbool.h>
#include <stdint.h>

/* The words of a spec, in the order of the enum. */
#define TEXT_FORMS                                                                                                     \
    { "text", "jsonl", "webdataset", "parquet", "arrow", NULL }
enum text_form { TEXT_PLAIN, TEXT_JSONL, TEXT_WEBDATASET, TEXT_PARQUET, TEXT_ARROW };

#define TEXT_IN_MEMORY ((int64_t)1 << 30)

struct text_format {
    enum text_form form;
    /* jsonl: a string of each line's object; "a.b" is b in the object a. parquet, arrow: a column of strings; "a.b" is
     * b in the column of structs a. webdataset: an extension of the files of each sample ("txt"), or a string of a
     * JSON file ("json.text"). NULL or "" = "text", in a WebDataset "txt". */
    const char *document;
    const char *separator;       /* NULL = "" */
    bool keep_compressed;        /* plain: a compressed file is not unpacked, because any bytes are text */
    const char *folder;          /* where the copy's space is taken; NULL = memory */
    void (*progress)(void *ctx); /* called every few MiB; may be NULL */
    void *ctx;
};

/* As data_file_open. INVALID_ARGUMENT also names the line or sample that is no document. RESOURCE_EXHAUSTED: the text
 * is longer than TEXT_IN_MEMORY, or the disk is full. FAILED_PRECONDITION: as table_file_open. gzip, bzip2, xz, zstd
 * and lz4 are unpacked, except below tables. */
MUST_CHECK status_t text_file_open(struct data_file *f, const struct text_format *format, const struct roots *roots,
                                   const char *path, struct err *e);

#endif
