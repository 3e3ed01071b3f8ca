#include "cli/sibling.h"

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
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return err_errno(e, "finding this program's path");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t room = sizeof path - (size_t)(slash + 1 - path);
    if (s->n > SIBLING_WORDS || (size_t)snprintf(slash + 1, room, "%s", program) >= room)
        return err_set(e, ST_INVALID_ARGUMENT, "too many arguments for %s", program);
    const char *argv[SIBLING_WORDS + 2] = { program };
    memcpy(argv + 1, s->words, s->n * sizeof *s->words);
    fflush(stdout);
    execv(path, (char *const *)argv);
    return err_set(e, errno == ENOENT ? ST_NOT_FOUND : ST_INTERNAL, "%s, which does this, cannot be started: %s", path,
                   strerror(errno));
}
