#include "cli/sibling.h"

#include "base/process.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void sibling_add(struct sibling *s, const char *word) {
    if (s->n < SIBLING_WORDS)
        s->words[s->n] = word;
    s->n++;
}

status_t sibling_become(const struct sibling *s, const char *program, struct err *e) {
    char path[PATH_MAX];
    TRY(process_beside(program, path, sizeof path, e));
    if (s->n > SIBLING_WORDS)
        return err_set(e, ST_INVALID_ARGUMENT, "too many arguments for %s", program);
    const char *argv[SIBLING_WORDS + 2] = { program };
    memcpy(argv + 1, s->words, s->n * sizeof *s->words);
    fflush(stdout);
    execv(path, (char *const *)argv);
    return err_set(e, errno == ENOENT ? ST_NOT_FOUND : ST_INTERNAL,
                   "%s, which runs this command, cannot be started: %s", path, strerror(errno));
}
