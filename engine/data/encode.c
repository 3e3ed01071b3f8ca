/* A file is read in blocks of ENCODE_BLOCK bytes. Each block ends at a boundary that no word can extend across, and is
 * divided at such boundaries into segments of at least ENCODE_SEGMENT bytes. Threads encode the segments; each thread
 * takes the next segment. Then the sink gets the tokens in order. The result is the same as if the file were encoded at
 * once, because the boundaries depend on the text alone. Bytes after the block's last boundary are moved to the start
 * of the next block. */
#include "engine/data/encode.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ASCII white space, and every byte that may be part of other white space. False positives only exclude boundaries. */
static bool may_be_space(char c) {
    uint8_t b = (uint8_t)c;
    return b <= ' ' || b >= 0x7f;
}

static bool is_boundary(const char *text, size_t at) {
    return text[at - 1] == '\n' && !may_be_space(text[at]) && !may_be_space(text[at - 2]);
}

/* The last boundary in 1 .. n - 1; 0 = none. */
static size_t last_boundary(const char *text, size_t n) {
    for (size_t at = n; at-- > 2;)
        if (is_boundary(text, at))
            return at;
    return 0;
}

struct segment {
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
    struct segment *segments;
    int n;
    atomic_int next;
};

static status_t encode_segment(const struct tokenizer *t, struct segment *p, struct err *e) {
    size_t capacity = tokenizer_capacity(t, p->n);
    if (!(p->tokens = malloc((capacity + 1) * sizeof *p->tokens)))
        return err_errno(e, "allocate %zu tokens", capacity);
    return (p->beginning ? tokenizer_encode : tokenizer_encode_next)(t, p->text, p->n, p->tokens, capacity,
                                                                     &p->n_tokens, e);
}

static void *encode_segments(void *arg) {
    struct work *w = arg;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->n;)
        w->segments[i].status = encode_segment(w->tokenizer, &w->segments[i], &w->segments[i].error);
    return NULL;
}

/* Segments of at least ENCODE_SEGMENT bytes; the last one may be shorter. Returns their number. */
static int split_block(const char *text, size_t n, bool beginning, struct segment *segments) {
    int made = 0;
    for (size_t from = 0; from < n; made++) {
        size_t to = n - from > ENCODE_SEGMENT ? from + ENCODE_SEGMENT : n;
        while (to < n && !is_boundary(text, to))
            to++;
        segments[made] = (struct segment){ .text = text + from, .n = to - from, .beginning = beginning && from == 0 };
        from = to;
    }
    return made;
}

static void run(struct work *w, int threads) {
    enum { MAX_THREADS = 64 };
    pthread_t others[MAX_THREADS];
    int started = 0;
    while (started < MAX_THREADS && started + 1 < threads && started + 1 < w->n)
        if (pthread_create(&others[started], NULL, encode_segments, w) == 0)
            started++;
        else
            break; /* the started threads and this thread do all the work */
    encode_segments(w);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

static status_t encode_block(const struct encode_options *o, const char *text, size_t n, bool beginning,
                             encode_sink_fn *sink, void *sink_ctx, struct err *e) {
    struct work w = { .tokenizer = o->tokenizer };
    if (!(w.segments = calloc(n / ENCODE_SEGMENT + 1, sizeof *w.segments)))
        return err_errno(e, "allocate %zu segments of text", n / ENCODE_SEGMENT + 1);
    w.n = split_block(text, n, beginning, w.segments);
    run(&w, o->threads);
    status_t st = ST_OK;
    for (int i = 0; i < w.n; i++) {
        struct segment *p = &w.segments[i];
        if (st == ST_OK)
            st = p->status == ST_OK ? sink(sink_ctx, p->tokens, p->n_tokens, e)
                                    : err_set(e, p->status, "%s", p->error.msg);
        free(p->tokens);
    }
    free(w.segments);
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
    CLEANUP(freep) char *text = alloc_zeroed(ENCODE_BLOCK, 1);
    size_t n = 0;
    for (int64_t done = 0; done < f->bytes;) { /* done: bytes encoded so far; text holds the next n bytes */
        size_t more = ENCODE_BLOCK - n;
        if ((int64_t)more > f->bytes - done - (int64_t)n)
            more = (size_t)(f->bytes - done - (int64_t)n);
        TRY(data_file_read(f, done + (int64_t)n, text + n, more, e));
        if (options->sha256)
            sha256_update(options->sha256, text + n, more);
        n += more;
        size_t take = n;
        if (done + (int64_t)n < f->bytes) {
            take = last_boundary(text, n);
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
