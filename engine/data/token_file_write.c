#include "engine/data/token_file_write.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/encode.h"
#include "engine/data/token_files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct writing {
    int fd;
    int token_bytes;
    int64_t tokens;
    const char *path;
};

static status_t write_bytes(const struct writing *w, const void *data, size_t n, struct err *e) {
    status_t st = fd_write_all(w->fd, data, n, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "'%s': ", w->path);
}

static status_t put(void *writing, const int32_t *tokens, size_t n, struct err *e) {
    struct writing *w = writing;
    if ((int64_t)n > INT32_MAX - w->tokens)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the text has more tokens than one token file can hold: divide it");
    CLEANUP(freep) uint16_t *narrow = NULL;
    if (w->token_bytes == 2) {
        if (!(narrow = malloc(n * sizeof *narrow + 1)))
            return err_errno(e, "allocate %zu tokens", n);
        for (size_t i = 0; i < n; i++)
            narrow[i] = (uint16_t)tokens[i];
    }
    w->tokens += (int64_t)n;
    return write_bytes(w, narrow ? (const void *)narrow : tokens, n * (size_t)w->token_bytes, e);
}

static status_t put_header(const struct writing *w, struct err *e) {
    int32_t header[TOKEN_FILE_HEADER_BYTES / 4] = { w->token_bytes == 2 ? TOKEN_FILE_MAGIC_2 : TOKEN_FILE_MAGIC_4,
                                                    w->token_bytes == 2 ? TOKEN_FILE_VERSION_2 : TOKEN_FILE_VERSION_4,
                                                    (int32_t)w->tokens };
    if (lseek(w->fd, 0, SEEK_SET) != 0)
        return err_errno(e, "write the token file '%s'", w->path);
    return write_bytes(w, header, sizeof header, e);
}

static status_t write_all(struct writing *w, const struct token_file_text *text, struct err *e) {
    const struct encode_options options = { .tokenizer = text->tokenizer, .threads = text->threads };
    CLEANUP(freep) char *path = alloc_copy_text(w->path);
    const struct text_format format = {
        .form = text->form, .document = text->document, .separator = text->separator, .folder = dirname(path)
    };
    TRY(put_header(w, e)); /* written again below, when the number of tokens is known */
    for (int i = 0; i < text->n_files; i++) {
        struct data_file f;
        status_t st = text_file_open(&f, &format, NULL, text->files[i], e);
        if (st == ST_OK)
            st = encode_file(&f, &options, put, w, e);
        data_file_close(&f);
        if (st != ST_OK)
            return st;
    }
    TRY(put_header(w, e));
    return fsync(w->fd) == 0 ? ST_OK : err_errno(e, "store the token file '%s'", w->path);
}

status_t token_file_write(const struct token_file_text *text, const char *path, int64_t *ret_tokens, struct err *e) {
    if (tokenizer_kind_of(text->tokenizer) == TOKENIZER_CHAR)
        return err_set(e, ST_INVALID_ARGUMENT, "a token file cannot store the vocabulary of a char tokenizer");
    CLEANUP(freep) char *unfinished = alloc_format("%s.tmp", path);
    struct writing w = { .path = path, .token_bytes = tokenizer_vocabulary(text->tokenizer) <= 1 << 16 ? 2 : 4 };
    w.fd = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w.fd < 0)
        return err_errno(e, "write the token file '%s'", unfinished);
    status_t st = write_all(&w, text, e);
    close(w.fd);
    if (st == ST_OK && rename(unfinished, path) != 0)
        st = err_errno(e, "write the token file '%s'", path);
    if (st != ST_OK) {
        unlink(unfinished);
        return st;
    }
    *ret_tokens = w.tokens;
    return ST_OK;
}
