/* Each stream has a buffer that is filled by one read and then written until it is empty, so that a stream takes
 * nothing while its reader does not read. Writes have at most PIPE_BUF bytes and happen when poll reports space: they
 * never block, although the agent's pipes are blocking here. If the agent's end is closed, bytes are dropped.
 *
 * The redactor of secrets is between the read and all else. It keeps bytes that may be the beginning of a value; they
 * follow with the next read, or at the end.
 *
 * output_end wakes the thread through an eventfd. From then on a stream is over when a read finds nothing: every
 * process of the command has ended, or the time is over. */
#include "executor/program/output.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { READ_BYTES = 16 << 10, FLUSH_PAUSE_MS = 2, REDACTED_MAX_BYTES = 1 << 20 };

struct stream {
    int from, to, command_end;
    char data[READ_BYTES];
    const char *bytes; /* [n] to be written: data, or what the redactor made of it */
    size_t n, written;
    bool redacts, at_end;
    struct redact_stream redaction;
    struct bytes redacted;
    bool over;
};

struct output {
    struct stream streams[2];
    pthread_t thread;
    bool runs;
    int wake;
    atomic_bool ending;
    _Atomic int64_t last_ms[2], end_at_ms;
    pthread_mutex_t lock;             /* of all that follows */
    char tail[2 * OUTPUT_TAIL_BYTES]; /* moved down when it is full */
    size_t n_tail;
    void (*line)(void *ctx, const char *text);
    void *line_context;
    char diverted[OUTPUT_LINE_BYTES]; /* an incomplete line */
    size_t n_diverted;
};

static void tail_keep(struct output *o, const char *data, size_t n) {
    if (n > OUTPUT_TAIL_BYTES) {
        data += n - OUTPUT_TAIL_BYTES;
        n = OUTPUT_TAIL_BYTES;
    }
    if (o->n_tail + n > sizeof o->tail) {
        const size_t kept = OUTPUT_TAIL_BYTES - n;
        memmove(o->tail, o->tail + o->n_tail - kept, kept);
        o->n_tail = kept;
    }
    memcpy(o->tail + o->n_tail, data, n);
    o->n_tail += n;
}

static void line_divert(struct output *o) {
    char text[OUTPUT_LINE_BYTES];
    o->diverted[o->n_diverted] = '\0';
    utf8_copy_printable(o->diverted, text, sizeof text);
    o->n_diverted = 0;
    o->line(o->line_context, text);
}

/* The rest of a line that is too long is a line of its own. */
static void lines_divert(struct output *o, const char *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n' && data[i] != '\0')
            o->diverted[o->n_diverted++] = data[i];
        if (data[i] == '\n' || o->n_diverted + 1 == sizeof o->diverted)
            line_divert(o);
    }
}

/* With the lock held. */
static void error_take(struct output *o, struct stream *s) {
    if (!o->line) {
        tail_keep(o, s->bytes, s->n);
        return;
    }
    lines_divert(o, s->bytes, s->n);
    s->written = s->n;
}

/* With the lock held. end: no further bytes follow. Without memory for what the redactor keeps, nothing is passed on.
 * */
static void bytes_take_in(struct output *o, struct stream *s, size_t n, bool end) {
    s->bytes = s->data;
    s->n = n;
    s->written = 0;
    s->at_end |= end;
    if (s->redacts) {
        bytes_clear(&s->redacted);
        status_ignore(redact_stream_feed(&s->redaction, s->data, n, end, &s->redacted, NULL));
        s->bytes = s->redacted.data;
        s->n = s->redacted.len;
    }
    if (s == &o->streams[1] && s->n > 0)
        error_take(o, s);
}

static void stream_read(struct output *o, struct stream *s) {
    pthread_mutex_lock(&o->lock);
    const ssize_t n = read(s->from, s->data, sizeof s->data);
    if (n > 0) {
        atomic_store(&o->last_ms[s - o->streams], clock_mono_ms());
        bytes_take_in(o, s, (size_t)n, false);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || atomic_load(&o->ending)) {
        if (s->at_end)
            s->over = true;
        else
            bytes_take_in(o, s, 0, true); /* what the redactor has kept; the next read finds the end again */
    }
    pthread_mutex_unlock(&o->lock);
}

static void stream_write(struct stream *s) {
    const size_t left = s->n - s->written;
    const ssize_t n = write(s->to, s->bytes + s->written, left < PIPE_BUF ? left : PIPE_BUF);
    if (n > 0)
        s->written += (size_t)n;
    else if (n < 0 && errno != EINTR && errno != EAGAIN)
        s->written = s->n; /* nobody reads it */
}

static bool is_full(const struct stream *s) { return s->written < s->n; }

static void *run(void *context) {
    struct output *o = context;
    while (!(o->streams[0].over && o->streams[1].over) && clock_mono_ms() < atomic_load(&o->end_at_ms)) {
        struct pollfd p[3];
        for (int i = 0; i < 2; i++) {
            const struct stream *s = &o->streams[i];
            p[i] = (struct pollfd){ .fd = s->over      ? -1
                                          : is_full(s) ? s->to
                                                       : s->from,
                                    .events = is_full(s) ? POLLOUT : POLLIN };
        }
        const bool ending = atomic_load(&o->ending);
        p[2] = (struct pollfd){ .fd = ending ? -1 : o->wake, .events = POLLIN };
        if (poll(p, 3, deadline_poll_ms(atomic_load(&o->end_at_ms))) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < 2; i++) {
            struct stream *s = &o->streams[i];
            if (!s->over && is_full(s) && p[i].revents)
                stream_write(s);
            else if (!s->over && !is_full(s) && (p[i].revents || atomic_load(&o->ending)))
                stream_read(o, s);
        }
    }
    return NULL;
}

static void stream_init(struct stream *s, int to, const struct redactor *redactor) {
    *s = (struct stream){ .from = -1, .command_end = -1, .to = to, .redacts = !redactor_is_empty(redactor) };
    redact_stream_init(&s->redaction, redactor);
    bytes_init(&s->redacted, REDACTED_MAX_BYTES);
}

status_t output_open(const struct redactor *redactor, struct output **ret, struct err *e) {
    CLEANUP(output_closep) struct output *o = alloc_zeroed(1, sizeof *o);
    for (int i = 0; i < 2; i++)
        stream_init(&o->streams[i], i + 1, redactor);
    pthread_mutex_init(&o->lock, NULL);
    atomic_init(&o->end_at_ms, DEADLINE_NEVER);
    o->wake = eventfd(0, EFD_CLOEXEC);
    if (o->wake < 0)
        return err_errno(e, "open a descriptor for the output of the command");
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return err_errno(e, "open a pipe for the output of the command");
        o->streams[i].from = ends[0];
        o->streams[i].command_end = ends[1];
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
            return err_errno(e, "open a pipe for the output of the command");
    }
    const int why = pthread_create(&o->thread, NULL, run, o);
    if (why != 0) {
        errno = why;
        return err_errno(e, "start a thread for the output of the command");
    }
    o->runs = true;
    *ret = take_ptr(&o);
    return ST_OK;
}

int output_command_end(const struct output *o, int stream) { return o->streams[stream - 1].command_end; }

void output_started(struct output *o) {
    for (int i = 0; i < 2; i++)
        closep(&o->streams[i].command_end);
}

int64_t output_last_ms(const struct output *o, int stream) { return atomic_load(&o->last_ms[stream - 1]); }

void output_divert(struct output *o, void (*line)(void *ctx, const char *text), void *ctx) {
    pthread_mutex_lock(&o->lock);
    o->line = line;
    o->line_context = ctx;
    pthread_mutex_unlock(&o->lock);
}

/* The thread reads and handles bytes with the lock held. */
void output_flush(struct output *o, int timeout_ms) {
    const deadline_ms_t end = deadline_in(timeout_ms);
    int left = 1;
    while (ioctl(o->streams[1].from, FIONREAD, &left) == 0 && left > 0 && clock_mono_ms() < end)
        poll(NULL, 0, FLUSH_PAUSE_MS);
    pthread_mutex_lock(&o->lock);
    pthread_mutex_unlock(&o->lock);
}

void output_end(struct output *o, int timeout_ms) {
    if (!o->runs)
        return;
    output_started(o);
    atomic_store(&o->end_at_ms, deadline_in(timeout_ms));
    atomic_store(&o->ending, true);
    const uint64_t one = 1;
    ssize_t wrote = write(o->wake, &one, sizeof one);
    (void)wrote;
    pthread_join(o->thread, NULL);
    o->runs = false;
    if (o->n_diverted > 0) /* the last line has no newline */
        line_divert(o);
}

size_t output_tail(struct output *o, char *ret) {
    pthread_mutex_lock(&o->lock);
    const size_t n = o->n_tail < OUTPUT_TAIL_BYTES ? o->n_tail : OUTPUT_TAIL_BYTES;
    memcpy(ret, o->tail + o->n_tail - n, n);
    pthread_mutex_unlock(&o->lock);
    return n;
}

struct output *output_close(struct output *o) {
    if (!o)
        return NULL;
    output_end(o, 0);
    for (int i = 0; i < 2; i++) {
        closep(&o->streams[i].from);
        closep(&o->streams[i].command_end);
        redact_stream_done(&o->streams[i].redaction);
        bytes_done(&o->streams[i].redacted);
    }
    closep(&o->wake);
    pthread_mutex_destroy(&o->lock);
    free(o);
    return NULL;
}
