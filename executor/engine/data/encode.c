#include "executor/engine/data/encode.h"

#include "base/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ASCII's white space, and every byte that may begin or end another: that refuses some places, and is safe. */
static bool may_be_space(char c) {
    uint8_t b = (uint8_t)c;
    return b <= ' ' || b >= 0x7f;
}

static bool is_cut(const char *text, size_t at) {
    return text[at - 1] == '\n' && !may_be_space(text[at]) && !may_be_space(text[at - 2]);
}

/* The last place in 1 .. n - 1 where the text may be cut; 0 = there is none. */
static size_t last_cut(const char *text, size_t n) {
    for (size_t at = n; at-- > 2;)
        if (is_cut(text, at))
            return at;
    return 0;
}

struct piece {
    const char *text;
    size_t n;
    bool beginning;
    int32_t *tokens;
    size_t n_tokens;
    status_t status;
    struct err error;
};

struct work {
    const struct tokenizer *tokenizer;
    struct piece *pieces;
    int n;
    atomic_int next;
};

static status_t encode_piece(const struct tokenizer *t, struct piece *p, struct err *e) {
    size_t room = tokenizer_capacity(t, p->n);
    if (!(p->tokens = malloc((room + 1) * sizeof *p->tokens)))
        return err_errno(e, "allocate %zu tokens", room);
    return (p->beginning ? tokenizer_encode : tokenizer_encode_next)(t, p->text, p->n, p->tokens, room, &p->n_tokens,
                                                                     e);
}

static void *encode_pieces(void *arg) {
    struct work *w = arg;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->n;)
        w->pieces[i].status = encode_piece(w->tokenizer, &w->pieces[i], &w->pieces[i].error);
    return NULL;
}

/* Pieces of at least ENCODE_PIECE bytes, the last one shorter. */
static int cut_pieces(const char *text, size_t n, bool beginning, struct piece *pieces) {
    int made = 0;
    for (size_t from = 0; from < n; made++) {
        size_t to = n - from > ENCODE_PIECE ? from + ENCODE_PIECE : n;
        while (to < n && !is_cut(text, to))
            to++;
        pieces[made] = (struct piece){ .text = text + from, .n = to - from, .beginning = beginning && from == 0 };
        from = to;
    }
    return made;
}

static void run(struct work *w, int threads) {
    enum { MOST = 64 };
    pthread_t others[MOST];
    int started = 0;
    while (started < MOST && started + 1 < threads && started + 1 < w->n)
        if (pthread_create(&others[started], NULL, encode_pieces, w) == 0)
            started++;
        else
            break; /* this thread does it alone */
    encode_pieces(w);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

static status_t encode_block(const struct encode_options *o, const char *text, size_t n, bool beginning,
                             encode_sink_fn *sink, void *sink_ctx, struct err *e) {
    struct work w = { .tokenizer = o->tokenizer };
    if (!(w.pieces = calloc(n / ENCODE_PIECE + 1, sizeof *w.pieces)))
        return err_errno(e, "allocate %zu pieces of text", n / ENCODE_PIECE + 1);
    w.n = cut_pieces(text, n, beginning, w.pieces);
    run(&w, o->threads);
    status_t st = ST_OK;
    for (int i = 0; i < w.n; i++) {
        struct piece *p = &w.pieces[i];
        if (st == ST_OK)
            st = p->status == ST_OK ? sink(sink_ctx, p->tokens, p->n_tokens, e)
                                    : err_set(e, p->status, "%s", p->error.msg);
        free(p->tokens);
    }
    free(w.pieces);
    return st;
}

static status_t check_utf8(const struct data_file *f, int64_t at, const char *text, size_t n, struct err *e) {
    for (size_t i = 0, length; i < n; i += length) {
        (void)utf8_next(text + i, n - i, &length);
        if (length == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the %s '%s' is not valid UTF-8 at byte %lld", f->what, f->path,
                           (long long)at + (long long)i);
    }
    return ST_OK;
}

status_t encode_file(const struct data_file *f, const struct encode_options *options, encode_sink_fn *sink,
                     void *sink_ctx, struct err *e) {
    CLEANUP(freep) char *text = malloc(ENCODE_BLOCK);
    if (!text)
        return err_errno(e, "allocate %d bytes", ENCODE_BLOCK);
    size_t n = 0;
    for (int64_t done = 0; done < f->bytes;) { /* bytes that are encoded; text holds the n that follow */
        size_t more = ENCODE_BLOCK - n;
        if ((int64_t)more > f->bytes - done - (int64_t)n)
            more = (size_t)(f->bytes - done - (int64_t)n);
        TRY(data_file_read(f, done + (int64_t)n, text + n, more, e));
        n += more;
        size_t take = n;
        if (done + (int64_t)n < f->bytes) {
            take = last_cut(text, n);
            take = take ? take : n - utf8_open(text, n);
        }
        TRY(check_utf8(f, done, text, take, e));
        status_t st = encode_block(options, text, take, done == 0, sink, sink_ctx, e);
        if (st != ST_OK)
            return err_prefix(e, st, "the %s '%s': ", f->what, f->path);
        n -= take;
        memmove(text, text + take, n);
        done += (int64_t)take;
        if (options->progress)
            options->progress(options->ctx);
    }
    return ST_OK;
}
