/* The file goes through libarchive, which unpacks it, into a reader for its form; a table has a reader of its own. The
 * reader gathers one document at a time in a buffer of at most DOCUMENT_BYTES and writes it and the separator to the
 * copy. */
#include "engine/data/text_file.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/document.h"
#include "engine/data/table_file.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, DOCUMENT_BYTES = 64 << 20, KEY_BYTES = 512, PROGRESS_BYTES = 4 << 20 };

struct copying {
    const struct text_format *format;
    const char *field, *separator, *path;
    struct archive *in;
    struct bytes part;     /* a line, or a file of a sample */
    struct bytes document; /* and its separator */
    int out;
    int64_t written, reported; /* bytes; at the last call of progress */
};

/* ---- the copy ---- */

static status_t write_document(struct copying *c, struct err *e) {
    TRY(bytes_append(&c->document, c->separator, strlen(c->separator), e));
    c->written += (int64_t)c->document.len;
    if (!c->format->folder && c->written > TEXT_IN_MEMORY)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the text in the data file '%s' has more than %lld bytes, the limit in memory: make token files "
                       "of it (trainyard-train tokenize)",
                       c->path, (long long)TEXT_IN_MEMORY);
    status_t st = fd_write_all(c->out, c->document.data, c->document.len, e);
    if (st != ST_OK)
        return err_prefix(e, st, "copy the text of the data file '%s': ", c->path);
    bytes_clear(&c->document);
    if (c->format->progress && c->written - c->reported >= PROGRESS_BYTES) {
        c->reported = c->written;
        c->format->progress(c->format->ctx);
    }
    return ST_OK;
}

/* Not O_TMPFILE, which some file systems do not have. */
static int copy_open(const struct text_format *format) {
    if (!format->folder)
        return memfd_create("text", MFD_CLOEXEC);
    CLEANUP(freep) char *name = alloc_format("%s/.text-XXXXXX", format->folder);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* ---- reading ---- */

static status_t refuse_bytes(const struct copying *c, struct err *e) {
    const char *why = archive_error_string(c->in);
    return err_set(e, ST_INVALID_ARGUMENT, "the data file '%s' cannot be read: %s", c->path,
                   why ? why : "it is damaged");
}

/* A limit of one document is the file's fault, not the host's. */
static status_t at_place(const struct copying *c, status_t st, const char *place, struct err *e) {
    if (st == ST_RESOURCE_EXHAUSTED)
        return err_set(e, ST_INVALID_ARGUMENT, "the data file '%s': %s has more than %d bytes", c->path, place,
                       DOCUMENT_BYTES);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "the data file '%s': %s ", c->path, place);
}

/* *ret_n: 0 at the end. */
static status_t read_some(struct copying *c, void *to, size_t n, size_t *ret_n, struct err *e) {
    la_ssize_t got = archive_read_data(c->in, to, n);
    if (got < 0)
        return refuse_bytes(c, e);
    *ret_n = (size_t)got;
    return ST_OK;
}

/* ---- plain text ---- */

static status_t copy_plain(struct copying *c, struct err *e) {
    for (size_t n = 0;;) {
        TRY(bytes_reserve(&c->document, READ_BYTES, e));
        TRY(read_some(c, c->document.data, READ_BYTES, &n, e));
        c->document.len = n;
        if (n == 0)
            return write_document(c, e);
        const char *separator = c->separator; /* once, at the end */
        c->separator = "";
        status_t st = write_document(c, e);
        c->separator = separator;
        TRY(st);
    }
}

/* ---- JSON lines ---- */

static bool is_blank(const struct bytes *b) {
    for (size_t i = 0; i < b->len; i++)
        if (!strchr(" \t\r", b->data[i]))
            return false;
    return true;
}

static status_t end_line(struct copying *c, int64_t number, struct err *e) {
    char place[32];
    snprintf(place, sizeof place, "line %lld", (long long)number);
    if (is_blank(&c->part))
        return ST_OK;
    TRY(at_place(c, document_of_json(c->part.data, c->part.len, c->field, &c->document, e), place, e));
    bytes_clear(&c->part);
    return write_document(c, e);
}

static status_t copy_lines(struct copying *c, struct err *e) {
    CLEANUP(bytes_done) struct bytes block;
    int64_t line = 1;
    bytes_init(&block, READ_BYTES);
    TRY(bytes_reserve(&block, READ_BYTES, e));
    for (;;) {
        TRY(read_some(c, block.data, READ_BYTES, &block.len, e));
        if (block.len == 0)
            return c->part.len ? end_line(c, line, e) : ST_OK;
        for (const char *p = block.data, *end = p + block.len; p < end;) {
            const char *feed = memchr(p, '\n', (size_t)(end - p)), *to = feed ? feed : end;
            char place[32];
            snprintf(place, sizeof place, "line %lld", (long long)line);
            TRY(at_place(c, bytes_append(&c->part, p, (size_t)(to - p), e), place, e));
            p = to + 1;
            if (!feed)
                break;
            TRY(end_line(c, line++, e));
            bytes_clear(&c->part);
        }
    }
}

/* ---- WebDataset ---- */

struct sample {
    char key[KEY_BYTES]; /* the names of its files without their extensions */
    bool has_document;
    int64_t n;
};

static status_t end_sample(const struct copying *c, const struct sample *s, struct err *e) {
    if (s->n == 0 || s->has_document)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the data file '%s': sample '%.200s' has no file '.%s': see data.text.document", c->path, s->key,
                   c->field);
}

/* The name up to the first dot after the last slash; what follows the dot is the extension. */
static status_t begin_file(const struct copying *c, const char *name, struct sample *s, const char **ret_extension,
                           struct err *e) {
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash : name, '.');
    const size_t n = dot ? (size_t)(dot - name) : strlen(name);
    if (n >= KEY_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "the data file '%s': the name '%.80s...' is longer than %d bytes",
                       c->path, name, KEY_BYTES - 1);
    if (s->n == 0 || strlen(s->key) != n || memcmp(s->key, name, n) != 0) {
        TRY(end_sample(c, s, e));
        memcpy(s->key, name, n);
        s->key[n] = '\0';
        s->has_document = false;
        s->n++;
    }
    *ret_extension = dot ? dot + 1 : "";
    return ST_OK;
}

static status_t read_file(struct copying *c, const char *name, struct err *e) {
    char place[KEY_BYTES + 8];
    snprintf(place, sizeof place, "'%.400s'", name);
    bytes_clear(&c->part);
    for (size_t n = 0;; c->part.len += n) {
        TRY(at_place(c, bytes_reserve(&c->part, READ_BYTES, e), place, e));
        TRY(read_some(c, c->part.data + c->part.len, READ_BYTES, &n, e));
        if (n == 0)
            return ST_OK;
    }
}

static status_t copy_document(struct copying *c, const char *name, const char *part, struct err *e) {
    char place[KEY_BYTES + 8];
    snprintf(place, sizeof place, "'%.400s'", name);
    TRY(read_file(c, name, e));
    TRY(at_place(c,
                 part ? document_of_json(c->part.data, c->part.len, part, &c->document, e)
                      : bytes_append(&c->document, c->part.data, c->part.len, e),
                 place, e));
    return write_document(c, e);
}

static status_t copy_samples(struct copying *c, struct err *e) {
    struct sample s = { .n = 0 };
    struct archive_entry *entry;
    for (;;) {
        const char *extension = "", *part;
        int got = archive_read_next_header(c->in, &entry);
        if (got == ARCHIVE_EOF)
            return end_sample(c, &s, e);
        if (got < ARCHIVE_WARN)
            return refuse_bytes(c, e);
        const char *name = archive_entry_pathname(entry);
        if (!name || archive_entry_filetype(entry) != AE_IFREG)
            continue;
        TRY(begin_file(c, name, &s, &extension, e));
        if (!document_in_file(c->field, extension, &part))
            continue;
        TRY(copy_document(c, name, part, e));
        s.has_document = true;
    }
}

/* ---- tables ---- */

static status_t copy_rows(struct copying *c, struct table_file *t, struct err *e) {
    char place[32];
    for (int64_t row = 1;; row++) {
        const char *text;
        size_t n;
        TRY(table_file_next(t, &text, &n, e));
        if (!text)
            return ST_OK;
        snprintf(place, sizeof place, "row %lld", (long long)row);
        TRY(at_place(c, n > DOCUMENT_BYTES ? ST_RESOURCE_EXHAUSTED : bytes_append(&c->document, text, n, e), place, e));
        TRY(write_document(c, e));
    }
}

static status_t copy_table(struct copying *c, int file, struct err *e) {
    CLEANUP(table_file_closep) struct table_file *t = NULL;
    TRY(table_file_open(file, c->format->form == TEXT_PARQUET ? TABLE_PARQUET : TABLE_ARROW, c->field, c->path, &t, e));
    return copy_rows(c, t, e);
}

/* ---- any form ---- */

/* Programs that unpack are never started, so the rarer compressions are not supported. */
static void support(struct archive *in, enum text_form form) {
    archive_read_support_filter_gzip(in);
    archive_read_support_filter_bzip2(in);
    archive_read_support_filter_xz(in);
    archive_read_support_filter_zstd(in);
    archive_read_support_filter_lz4(in);
    if (form == TEXT_WEBDATASET)
        archive_read_support_format_tar(in);
    else
        archive_read_support_format_raw(in);
}

static status_t copy_all(struct copying *c, int file, struct err *e) {
    struct archive_entry *entry;
    if (c->format->form == TEXT_PARQUET || c->format->form == TEXT_ARROW)
        return copy_table(c, file, e);
    if (archive_read_open_fd(c->in, file, READ_BYTES) != ARCHIVE_OK)
        return refuse_bytes(c, e);
    if (c->format->form == TEXT_WEBDATASET)
        return copy_samples(c, e);
    if (archive_read_next_header(c->in, &entry) != ARCHIVE_OK)
        return refuse_bytes(c, e);
    return c->format->form == TEXT_JSONL ? copy_lines(c, e) : copy_plain(c, e);
}

static status_t copy(const struct data_file *f, const struct text_format *format, int out, int64_t *ret_bytes,
                     struct err *e) {
    const bool archive = format->form == TEXT_WEBDATASET;
    struct copying c = { .format = format,
                         .field = format->document && *format->document ? format->document
                                  : archive                             ? "txt"
                                                                        : "text",
                         .separator = format->separator ? format->separator : "",
                         .path = f->path,
                         .in = archive_read_new(),
                         .out = out };
    bytes_init(&c.part, DOCUMENT_BYTES + READ_BYTES);
    bytes_init(&c.document, 2 * DOCUMENT_BYTES);
    if (!c.in)
        alloc_refused(sizeof c);
    support(c.in, format->form);
    status_t st = copy_all(&c, f->fd, e);
    archive_read_free(c.in);
    bytes_done(&c.part);
    bytes_done(&c.document);
    *ret_bytes = c.written;
    return st;
}

static bool is_compressed(const struct data_file *f) {
    static const struct {
        size_t n;
        uint8_t bytes[6];
    } FIRST[] = { { 2, { 0x1f, 0x8b } },
                  { 3, "BZh" },
                  { 6, { 0xfd, '7', 'z', 'X', 'Z', 0 } },
                  { 4, { 0x28, 0xb5, 0x2f, 0xfd } },
                  { 4, { 0x04, 0x22, 0x4d, 0x18 } } };
    uint8_t first[6] = { 0 };
    const ssize_t n = pread(f->fd, first, sizeof first, 0);
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++)
        if (n >= (ssize_t)FIRST[i].n && memcmp(first, FIRST[i].bytes, FIRST[i].n) == 0)
            return true;
    return false;
}

static bool needs_copy(const struct data_file *f, const struct text_format *format) {
    const bool separated = format->separator && *format->separator;
    if (f->bytes == 0) /* no document */
        return false;
    return format->form != TEXT_PLAIN || separated || (!format->keep_compressed && is_compressed(f));
}

status_t text_file_open(struct data_file *f, const struct text_format *format, const struct roots *roots,
                        const char *path, struct err *e) {
    TRY(data_file_open(f, "data file", roots, path, e));
    if (!needs_copy(f, format))
        return ST_OK;
    CLEANUP(closep) int out = copy_open(format);
    if (out < 0)
        return err_errno(e, "make space for the text of the data file '%s'", path);
    TRY(copy(f, format, out, &f->bytes, e));
    close(f->fd);
    f->fd = take_fd(&out);
    return ST_OK;
}
