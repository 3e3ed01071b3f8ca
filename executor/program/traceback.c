/* The text is read once, line by line. A line either begins a block, belongs to the open block, or is ignored:
 *
 *   begin    "Traceback (most recent call last):" anywhere in a line. What precedes it is the block's prefix.
 *            A frame without a function outside of a block begins one too: so Python prints a SyntaxError
 *   frame    '  File "PATH", line N, in NAME'; the last one in the user's own code is kept
 *   end      after a frame, a line that begins with a name of a type: the exception. The lines that follow it are its
 *            message; a few of them are searched for signs of a lost peer
 *
 * The lines of an ExceptionGroup have a gutter of '|' and '+'. The group's own exception ends its block; the exceptions
 * inside it are skipped.
 *
 * Each exception that is found may replace the best one so far (better). Nothing is allocated, and each line is cut to
 * LINE_MAX_BYTES, so that long lines cost nothing more. */
#include "executor/program/traceback.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096, MESSAGE_LINES = 12 };

struct line {
    const char *at;
    size_t n;
};

struct reader {
    struct line prefix;
    bool open, grouped, in_group, chained, own;
    int frames;
    int message_lines; /* of the exception in `last` that are still searched */
    struct exception block, last, best;
    bool has_last, has_best, last_chained, many;
    bool crashed; /* `last` is a crash: faulthandler may report its frames */
    bool aborted; /* the interpreter crashed while it ended because of `last`: `last` stays */
    bool current; /* its lines are those of the thread that crashed */
};

/* ---- lines ---- */

static struct line line_from(struct line l, size_t skip) { return (struct line){ l.at + skip, l.n - skip }; }

static bool begins(struct line l, const char *text) {
    const size_t n = strlen(text);
    return l.n >= n && memcmp(l.at, text, n) == 0;
}

/* Where `text` is in the line; l.n if it is not. */
static size_t find(struct line l, const char *text) {
    const char *at = memmem(l.at, l.n, text, strlen(text));
    return at ? (size_t)(at - l.at) : l.n;
}

static bool has(struct line l, const char *text) { return find(l, text) < l.n; }

/* Printable, and not cut inside a character. */
static void copy(struct line l, char *ret, size_t bytes) {
    char raw[LINE_MAX_BYTES + 1];
    memcpy(raw, l.at, l.n);
    for (size_t i = 0; i < l.n; i++)
        if (raw[i] == '\0')
            raw[i] = '?';
    raw[l.n] = '\0';
    utf8_copy_printable(raw, ret, bytes);
}

/* ---- what an exception is ---- */

static const char *last_name(const char *type) {
    const char *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool shows_lost_peer(struct line l) {
    static const char *const signs[] = { "closed by peer",
                                         "reset by peer",
                                         "Broken pipe",
                                         "Connection was likely closed",
                                         "remote process exit",
                                         "ncclRemoteError",
                                         "Connection refused",
                                         "Watchdog caught collective operation timeout",
                                         "Timed out waiting",
                                         "failed to recv, got 0 bytes",
                                         "NCCL communicator was aborted",
                                         "Horovod has been shut down",
                                         "distributed service detected fatal errors" };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (has(l, signs[i]))
            return true;
    return false;
}

static enum exception_kind kind_of(const char *type, const char *message) {
    static const char *const code[] = { "ImportError", "ModuleNotFoundError",
                                        "SyntaxError", "IndentationError",
                                        "TabError",    NULL };
    static const char *const peer[] = { "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError",
                                        "HorovodInternalError", "DistNetworkError",       NULL };
    const char *name = last_name(type);
    if (is_one_of(name, code))
        return EXCEPTION_CODE;
    if (ends_with(name, "MemoryError") || strstr(message, "CUDA out of memory") ||
        strstr(message, "CUDA error: out of memory") || strstr(message, "can't allocate memory") ||
        strncmp(message, "RESOURCE_EXHAUSTED: Out of memory", 33) == 0)
        return EXCEPTION_MEMORY;
    if (is_one_of(name, peer) || shows_lost_peer((struct line){ message, strlen(message) }))
        return EXCEPTION_PEER;
    return EXCEPTION_OTHER;
}

/* torchrun's and accelerate's own exceptions about a process that they started. */
static bool is_launchers(const struct exception *x) {
    const char *name = last_name(x->type);
    return strcmp(name, "ChildFailedError") == 0 || strcmp(name, "CalledProcessError") == 0;
}

static bool better(const struct reader *r) {
    if (!r->has_best)
        return true;
    if (is_launchers(&r->last) || is_launchers(&r->best))
        return is_launchers(&r->best);
    return r->last.kind != EXCEPTION_PEER || r->best.kind == EXCEPTION_PEER || !(r->many || r->last_chained);
}

/* The lines of the message are over, or the text is. */
static void exception_settle(struct reader *r) {
    if (r->has_last && better(r)) {
        r->best = r->last;
        r->has_best = true;
    }
    r->has_last = r->crashed = r->aborted = r->current = false;
    r->message_lines = 0;
}

/* ---- blocks ---- */

static void block_begin(struct reader *r, struct line prefix) {
    exception_settle(r);
    r->open = true;
    r->grouped = r->in_group = r->own = false;
    r->prefix = prefix;
    r->frames = 0;
    r->block = (struct exception){ 0 };
}

static void block_end(struct reader *r) {
    r->block.kind = kind_of(r->block.type, r->block.message);
    r->last = r->block;
    r->last_chained = r->chained;
    r->has_last = true;
    r->message_lines = MESSAGE_LINES;
    r->open = r->chained = false;
    r->in_group = r->grouped;
}

/* Files that Python and its packages have brought are not the user's. */
static bool is_own(struct line path) {
    if (begins(path, "<"))
        return begins(path, "<string>") || begins(path, "<stdin>");
    if (has(path, "/site-packages/") || has(path, "/dist-packages/"))
        return false;
    static const char *const folders[] = { "/lib/python", "/lib64/python" };
    for (int i = 0; i < 2; i++) {
        const size_t at = find(path, folders[i]) + strlen(folders[i]);
        if (at < path.n && isdigit((unsigned char)path.at[at]))
            return false;
    }
    return true;
}

static void frame_keep(struct reader *r, struct line path, long number, struct line function) {
    struct exception *x = &r->block;
    const size_t kept = sizeof x->file - 4;
    x->line = number;
    if (path.n > kept) {
        memcpy(x->file, "...", 3);
        size_t skip = path.n - kept;
        while (skip < path.n && ((unsigned char)path.at[skip] & 0xc0) == 0x80) /* not inside a character */
            skip++;
        copy(line_from(path, skip), x->file + 3, sizeof x->file - 3);
    } else {
        copy(path, x->file, sizeof x->file);
    }
    copy(function, x->function, sizeof x->function);
    if (strcmp(x->function, "<module>") == 0)
        *x->function = '\0';
}

/* '  File "PATH", line N', then ', in NAME', ' in NAME' (faulthandler) or nothing (SyntaxError). */
static bool frame_read(struct line l, struct line *ret_path, long *ret_number, struct line *ret_function) {
    if (!begins(l, "  File \""))
        return false;
    const struct line rest = line_from(l, 8);
    const size_t end = find(rest, "\", line ");
    if (end == rest.n)
        return false;
    struct line after = line_from(rest, end + 8);
    size_t digits = 0;
    long number = 0;
    for (; digits < after.n && digits < 9 && isdigit((unsigned char)after.at[digits]); digits++)
        number = number * 10 + (after.at[digits] - '0');
    if (digits == 0)
        return false;
    after = line_from(after, digits);
    *ret_path = (struct line){ rest.at, end };
    *ret_number = number;
    *ret_function = begins(after, ", in ")  ? line_from(after, 5)
                    : begins(after, " in ") ? line_from(after, 4)
                                            : line_from(after, after.n);
    return true;
}

/* innermost_first: faulthandler's order. */
static bool frame_take(struct reader *r, struct line l, bool innermost_first) {
    struct line path, function;
    long number;
    if (!frame_read(l, &path, &number, &function))
        return false;
    r->frames++;
    if (is_own(path) && !(innermost_first && r->own)) {
        r->own = true;
        frame_keep(r, path, number, function);
    }
    return true;
}

/* A dotted name at the beginning of the line, then ": " or the end. Words such as "INFO" are lines of a log. */
static bool exception_take(struct reader *r, struct line l) {
    size_t n = 0;
    bool dotted = false, lower = false;
    for (; n < l.n && (isalnum((unsigned char)l.at[n]) || l.at[n] == '_' || l.at[n] == '.'); n++) {
        dotted |= l.at[n] == '.';
        lower |= islower((unsigned char)l.at[n]) != 0;
    }
    const bool named = n > 0 && n < sizeof r->block.type && !isdigit((unsigned char)*l.at) && *l.at != '.' && lower &&
                       (dotted || isupper((unsigned char)*l.at) || *l.at == '_');
    if (!named || (n < l.n && l.at[n] != ':'))
        return false;
    copy((struct line){ l.at, n }, r->block.type, sizeof r->block.type);
    for (n += n < l.n; n < l.n && l.at[n] == ' '; n++)
        continue;
    copy(line_from(l, n), r->block.message, sizeof r->block.message);
    return true;
}

/* An exception of one line, without a frame. */
static void exception_put(struct reader *r, const char *type, struct line message) {
    block_begin(r, (struct line){ message.at, 0 });
    snprintf(r->block.type, sizeof r->block.type, "%s", type);
    copy(message, r->block.message, sizeof r->block.message);
    block_end(r);
}

/* ---- the forms ---- */

#define HEADER "Traceback (most recent call last):"
#define GROUP  "Exception Group "

static bool header_take(struct reader *r, struct line l) {
    const size_t at = find(l, HEADER);
    if (at == l.n)
        return false;
    struct line prefix = { l.at, at };
    const bool group = at >= sizeof GROUP - 1 && memcmp(l.at + at - (sizeof GROUP - 1), GROUP, sizeof GROUP - 1) == 0;
    if (group) {
        prefix.n -= sizeof GROUP - 1;
        while (prefix.n && strchr("+| ", prefix.at[prefix.n - 1]))
            prefix.n--;
        prefix.n += prefix.n > 0; /* "[rank0]: " ends with a space */
    }
    block_begin(r, prefix);
    r->grouped = group;
    return true;
}

/* Takes the gutter of a group's line away: "  |   File ..." is "  File ...". False: the line has none. */
static bool gutter_take(struct line *l) {
    size_t n = 0;
    while (n < l->n && l->at[n] == ' ')
        n++;
    if (n == l->n || (l->at[n] != '|' && l->at[n] != '+'))
        return false;
    n++;
    *l = line_from(*l, n < l->n && l->at[n] == ' ' ? n + 1 : n);
    return true;
}

/* python3: No module named x, and "Error while finding module specification for 'x' (ModuleNotFoundError: ...)". */
static bool interpreter_take(struct reader *r, struct line l) {
    const size_t at = find(l, ": No module named "), other = find(l, ": Error while finding module specification");
    const size_t n = at < l.n ? at : other;
    const struct line name = { l.at, n < l.n ? n : 0 };
    if (n == l.n || !has(name, "python") || memchr(name.at, ' ', name.n))
        return false;
    exception_put(r, "ModuleNotFoundError", line_from(l, n + 2));
    return true;
}

/* C++'s "terminate called" is followed by SIGABRT, and that by faulthandler's report, if it is enabled. An exception
 * that no code has handled may be followed by a crash too: PyTorch's threads still run when the interpreter ends. */
static bool crash_take(struct reader *r, struct line l) {
    const bool crash = begins(l, "terminate called ") || begins(l, "Fatal Python error: ");
    if (crash && !r->crashed && r->has_last && *r->last.file && r->message_lines > 0)
        r->aborted = true;
    if (crash && r->aborted) {
        r->crashed = true;
        return true;
    }
    if (begins(l, "terminate called after throwing an instance of '")) {
        const struct line type = line_from(l, 48);
        char name[sizeof r->block.type];
        copy((struct line){ type.at, find(type, "'") }, name, sizeof name);
        exception_put(r, name, (struct line){ l.at, 0 });
    } else if (begins(l, "Fatal Python error: ")) {
        if (!r->crashed || !has(l, "Aborted"))
            exception_put(r, "Fatal Python error", line_from(l, 20));
    } else {
        return false;
    }
    r->crashed = true;
    return true;
}

/* What follows a crash. faulthandler prints the frames of each thread, the innermost first. */
static bool crash_line(struct reader *r, struct line l) {
    if (r->aborted)
        return l.n > 0 && (*l.at == ' ' || begins(l, "Current thread 0x") || begins(l, "Thread 0x"));
    if (begins(l, "  what():  ")) {
        copy(line_from(l, 11), r->last.message, sizeof r->last.message);
        r->last.kind = kind_of(r->last.type, r->last.message);
        return true;
    }
    if (begins(l, "Current thread 0x") || begins(l, "Thread 0x")) {
        r->current = *l.at == 'C';
        return true;
    }
    r->block = r->last;
    r->own = *r->last.file;
    if (!frame_take(r, l, true))
        return false;
    if (r->current)
        r->last = r->block;
    return true;
}

/* A SyntaxError has a frame without a function, and no header. */
static bool other_form_take(struct reader *r, struct line l) {
    struct line path, function;
    long number;
    if (r->crashed && crash_line(r, l))
        return true;
    if (frame_read(l, &path, &number, &function) && function.n == 0 && function.at == l.at + l.n) {
        block_begin(r, (struct line){ l.at, 0 });
        return frame_take(r, l, false);
    }
    return interpreter_take(r, l);
}

static void block_line(struct reader *r, struct line l) {
    if (l.n < r->prefix.n || memcmp(l.at, r->prefix.at, r->prefix.n) != 0)
        return;
    l = line_from(l, r->prefix.n);
    if (r->grouped && !gutter_take(&l))
        return;
    if (frame_take(r, l, false) || l.n == 0 || *l.at == ' ' || *l.at == '\t')
        return;
    if (r->frames > 0 && exception_take(r, l))
        block_end(r);
}

static void line_take(struct reader *r, struct line l) {
    struct line inner = l;
    if (r->in_group && gutter_take(&inner))
        return;
    if (header_take(r, l) || crash_take(r, l))
        return;
    if (has(l, "During handling of the above exception, another exception occurred:") ||
        has(l, "The above exception was the direct cause of the following exception:")) {
        r->chained = true;
        return;
    }
    if (r->open) {
        block_line(r, l);
        return;
    }
    if (other_form_take(r, l) || r->message_lines == 0)
        return;
    r->message_lines--;
    if (r->last.kind == EXCEPTION_OTHER && shows_lost_peer(l))
        r->last.kind = EXCEPTION_PEER;
}

bool traceback_find(const char *text, size_t n, bool many, struct exception *ret) {
    struct reader r = { .many = many };
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t length = newline ? (size_t)(newline - (text + at)) : n - at;
        struct line l = { text + at, length < LINE_MAX_BYTES ? length : LINE_MAX_BYTES };
        at += length + 1;
        if (l.n && l.at[l.n - 1] == '\r')
            l.n--;
        line_take(&r, l);
    }
    r.last.at_end = r.has_last && r.message_lines > 0;
    exception_settle(&r);
    if (r.has_best)
        *ret = r.best;
    return r.has_best;
}

/* ---- the file of torch.distributed.elastic ---- */

/* "ValueError: boom" without frames. */
static void message_split(const char *message, struct exception *ret) {
    struct reader r = { .open = false };
    const size_t n = strcspn(message, "\n");
    const struct line l = { message, n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES };
    if (!exception_take(&r, l))
        copy(l, r.block.message, sizeof r.block.message);
    *ret = r.block;
    ret->kind = kind_of(ret->type, ret->message);
    ret->at_end = true;
}

/* NULL: it is no text. */
static char *text_of(const json_t *value, const struct redactor *redactor) {
    if (!json_is_string(value))
        return NULL;
    char *text = alloc_copy_text(json_string_value(value));
    redact_text(redactor, text);
    return text;
}

bool traceback_error_file(const char *text, size_t n, const struct redactor *redactor, struct exception *ret) {
    json_t *file = json_loadb(text, n, 0, NULL), *message = json_object_get(file, "message");
    CLEANUP(freep)
    char *stack = text_of(json_object_get(json_object_get(message, "extraInfo"), "py_callstack"), redactor);
    CLEANUP(freep)
    char *said = text_of(json_is_object(message) ? json_object_get(message, "message") : message, redactor);
    bool found = stack && traceback_find(stack, strlen(stack), false, ret);
    if (!found && said && *said) {
        message_split(said, ret);
        found = true;
    }
    json_decref(file);
    return found;
}

void traceback_sentence(const struct exception *x, char *ret, size_t bytes) {
    char whole[sizeof x->type + sizeof x->message + 3], place[sizeof x->file + sizeof x->function + 32] = "";
    char function[sizeof x->function];
    const size_t n = strlen(x->file), shown_bytes = bytes * 2 / 5;
    const char *shown = x->file + (n > shown_bytes ? n - shown_bytes : 0);
    while (((unsigned char)*shown & 0xc0) == 0x80) /* not inside a character */
        shown++;
    utf8_copy_printable(x->function, function, bytes / 8 < sizeof function ? bytes / 8 : sizeof function);
    if (n > 0)
        snprintf(place, sizeof place, ", at %s%s:%ld%s%s", n > shown_bytes ? "..." : "", shown, x->line,
                 *function ? " in " : "", function);
    snprintf(whole, sizeof whole, "%s%s%s", x->type, *x->type && *x->message ? ": " : "", x->message);
    const size_t left = bytes - strlen(place); /* more than a third of the bytes */
    const bool cut = strlen(whole) >= left;
    char head[sizeof whole];
    utf8_copy_printable(whole, head, cut ? left - 3 : sizeof head);
    snprintf(ret, bytes, "%s%s%s", head, cut ? "..." : "", place);
}
