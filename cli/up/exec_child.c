#include "cli/up/exec_child.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { EXIT_NOT_STARTED = 127 };

static int fail(const char *what) {
    fprintf(stderr, "trainyard exec-child: %s: %s\n", what, strerror(errno));
    return EXIT_NOT_STARTED;
}

int exec_child_main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "trainyard: 'exec-child' is for 'trainyard up' only\n");
        return EXIT_NOT_STARTED;
    }
    pid_t parent = (pid_t)atol(argv[0]);
    int death_signal = atoi(argv[1]);
    long uid = atol(argv[2]), gid = atol(argv[3]);
    if (gid >= 0 && (setgroups(0, NULL) < 0 || setgid((gid_t)gid) < 0))
        return fail("changing the group");
    if (uid >= 0 && setuid((uid_t)uid) < 0)
        return fail("changing the user");
    /* After setuid, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, death_signal) < 0)
        return fail("asking for the parent's death signal");
    if (getppid() != parent)
        return EXIT_NOT_STARTED; /* the parent died before prctl */
    if (uid >= 0 && chdir("/") < 0)
        return fail("chdir /");
    execv(argv[4], argv + 4);
    return fail(argv[4]);
}
