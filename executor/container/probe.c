#include "base/cleanup.h"
#include "base/file.h"
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, SENTENCE_BYTES = 300 };

/* In the child. Writes why not. */
static void attempt(struct container_options *o, bool as_user, int report) {
    CLEANUP(container_closep) struct container *c = NULL;
    struct err why = { "" };
    const char *step = "";
    if (as_user && geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        status_ignore(err_errno(&why, "become a user without privileges"));
    o->group = getegid();
    if (!*why.msg && container_open(o, &c, &why) == ST_OK && (errno = container_enter(c, &step)) != 0)
        status_ignore(container_failure(step, errno, &why));
    const ssize_t wrote = write(report, why.msg, strlen(why.msg));
    _exit(wrote < 0);
}

static status_t try_in(struct container_options *o, bool as_user, struct err *e) {
    char sentence[SENTENCE_BYTES] = "";
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "open a pipe");
    const pid_t pid = fork();
    if (pid == 0)
        attempt(o, as_user, ends[1]);
    close(ends[1]);
    const ssize_t n = pid > 0 ? read(ends[0], sentence, sizeof sentence - 1) : 0;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return err_errno(e, "start a process");
    if (n > 0)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", sentence);
    return status == 0 ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "the process that tried it was killed");
}

status_t container_probe(bool as_user, const char *helper, struct err *e) {
    const char *given = getenv("TMPDIR");
    char folder[PATH_MAX], image[PATH_MAX + 8], temporary[PATH_MAX + 8];
    if (snprintf(folder, sizeof folder, "%s/trainyard-probe-XXXXXX", given && *given == '/' ? given : "/tmp") >=
            (int)sizeof folder ||
        !mkdtemp(folder))
        return err_errno(e, "make a folder in TMPDIR");
    snprintf(image, sizeof image, "%s/image", folder);
    snprintf(temporary, sizeof temporary, "%s/tmp", folder);
    CLEANUP(closep) int root = -1;
    CLEANUP(closep) int program = open(helper, O_PATH | O_CLOEXEC);
    status_t st = ST_OK;
    if (program < 0 || mkdir(image, 0755) < 0 || mkdir(temporary, 0755) < 0 || chmod(folder, 0777) < 0 ||
        chmod(temporary, 0777) < 0 || (root = open(image, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        st = err_errno(e, "prepare '%.200s' and the folder '%.200s'", helper, folder);
    struct container_options o = { .root = root, .work = folder, .temporary = temporary, .helper = program };
    if (st == ST_OK)
        st = try_in(&o, as_user, e);
    status_ignore(dir_remove_readonly(folder, NULL));
    return st;
}
