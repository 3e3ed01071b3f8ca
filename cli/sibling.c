#include "cli/sibling.h"

#include "base/process.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void sibling_add(struct sibling *s, const char *word) {
    if (s->n < SIBLING_WORDS)
        s->words[s->n] = word;
    s->n++;
}

static status_t words_list(const struct sibling *s, const char *program, const char *ret[SIBLING_WORDS + 2],
                           struct err *e) {
    if (s->n > SIBLING_WORDS)
        return err_set(e, ST_INVALID_ARGUMENT, "too many arguments for %s", program);
    ret[0] = program;
    memcpy(ret + 1, s->words, s->n * sizeof *s->words);
    return ST_OK;
}

status_t sibling_run(const struct sibling *s, const char *program, struct err *e) {
    char path[PATH_MAX];
    const char *argv[SIBLING_WORDS + 2] = { NULL };
    int status = 0;
    pid_t pid;
    TRY(process_beside(program, path, sizeof path, e));
    TRY(words_list(s, program, argv, e));
    fflush(stdout);
    TRY(process_start(&(struct process){ .program = path, .argv = argv }, &pid, e));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(e, "wait for %s", program);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ST_OK : err_set(e, ST_INTERNAL, "%s failed", program);
}

status_t sibling_become(const struct sibling *s, const char *program, struct err *e) {
    char path[PATH_MAX];
    TRY(process_beside(program, path, sizeof path, e));
    const char *argv[SIBLING_WORDS + 2] = { NULL };
    TRY(words_list(s, program, argv, e));
    fflush(stdout);
    execv(path, (char *const *)argv);
    return err_set(e, errno == ENOENT ? ST_NOT_FOUND : ST_INTERNAL,
                   "%s, which runs this command, cannot be started: %s", path, strerror(errno));
}
