#include "executor/program/failure.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/program/traceback.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* SENTENCE_BYTES: the agent keeps as many (executor/agent/core/exit_reason.h). */
enum { ERROR_FILE_MAX_BYTES = 1 << 20, SENTENCE_BYTES = 240, STATUS_BYTES = 160 };

#define CAUSE(name) TRAINYARD__V1__WORKER_END__CAUSE__##name

/* The program may have put anything there: a FIFO would block, and a link leads elsewhere. */
static bool error_file_read(const char *path, const struct redactor *redactor, struct exception *ret) {
    struct bytes text;
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bytes_init(&text, ERROR_FILE_MAX_BYTES);
    bool found = fd >= 0 && fd_read_file(fd, path, &text, NULL) == ST_OK && text.len > 0;
    found = found && traceback_error_file(text.data, text.len, redactor, ret);
    bytes_done(&text);
    return found;
}

static void status_describe(const struct failure_facts *f, const char *subject, char ret[STATUS_BYTES]) {
    const int status = f->wait_status;
    if (WIFEXITED(status))
        snprintf(ret, STATUS_BYTES, "%sexit%s status %d%s", subject, *subject ? "ed with" : "", WEXITSTATUS(status),
                 f->early ? " before it reported a metric" : "");
    else
        snprintf(ret, STATUS_BYTES, "%s%ssignal %d (%s)%s", subject, *subject ? "was killed by " : "", WTERMSIG(status),
                 strsignal(WTERMSIG(status)),
                 *subject && WTERMSIG(status) == SIGKILL ? ": by a person, or by the kernel because memory ran out"
                                                         : "");
}

/* Nobody's exception: an exception on stderr was handled. */
static bool was_killed(const struct failure_facts *f) {
    return WIFSIGNALED(f->wait_status) && (WTERMSIG(f->wait_status) == SIGKILL || WTERMSIG(f->wait_status) == SIGTERM);
}

/* An exception that is followed by other output may have been handled: it does not forbid a retry. */
static Trainyard__V1__WorkerEnd__Cause cause_of(const struct failure_facts *f, const struct exception *x) {
    if (x && (x->at_end || f->many) && (x->kind == EXCEPTION_MEMORY || x->kind == EXCEPTION_CODE))
        return CAUSE(BAD_SPEC);
    if (x && x->kind == EXCEPTION_PEER && f->has_peers)
        return CAUSE(PEER_LOST);
    return f->early && WIFEXITED(f->wait_status) ? CAUSE(BAD_SPEC) : CAUSE(INTERNAL);
}

void failure_describe(const struct failure_facts *f, Trainyard__V1__WorkerEnd__Cause *ret_cause, struct err *ret_why) {
    struct exception x;
    char status[STATUS_BYTES], sentence[SENTENCE_BYTES], name[48];
    const bool found = !was_killed(f) && (error_file_read(f->error_file, f->redactor, &x) ||
                                          traceback_find(f->tail, f->n_tail, f->many, &x));
    *ret_cause = cause_of(f, found ? &x : NULL);
    if (found) {
        status_describe(f, "", status);
        traceback_sentence(&x, sentence, SENTENCE_BYTES - strlen(status) - 3);
        status_ignore(err_set(ret_why, ST_INTERNAL, "%s (%s)", sentence, status));
    } else {
        snprintf(name, sizeof name, "'%.36s' ", f->command);
        status_describe(f, name, status);
        status_ignore(err_set(ret_why, ST_INTERNAL, "%s", status));
    }
}

bool failure_raised(const char *tail, size_t n_tail, struct err *ret_why) {
    struct exception x;
    char sentence[SENTENCE_BYTES];
    if (!traceback_find(tail, n_tail, false, &x) || !x.at_end || x.kind == EXCEPTION_PEER)
        return false;
    traceback_sentence(&x, sentence, sizeof sentence);
    status_ignore(err_set(ret_why, ST_INTERNAL, "%s", sentence));
    return true;
}
