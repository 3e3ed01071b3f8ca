#include "executor/agent/job_user.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { USERS_MAX = 1000000 };
static const unsigned USER_LAST = 4000000000U; /* below the numbers with a meaning of their own, such as -1 and -2 */

bool job_user_is_own(const struct agent_options *o) { return o->job_user_last > 0; }

uid_t job_user_of(const struct agent_options *o, int64_t job) {
    if (job == JOB_USER_REQUEST)
        return o->job_user_last;
    return o->job_user_first + (uid_t)(job % (int64_t)(o->job_user_last - o->job_user_first));
}

uid_t job_user_uid(const struct agent_options *o, int64_t job) {
    if (job_user_is_own(o))
        return job_user_of(o, job);
    const struct passwd *user = o->worker_user ? getpwnam(o->worker_user) : NULL;
    return user ? user->pw_uid : geteuid();
}

static void group_append(char *text, const char *name) {
    const struct group *g = getgrnam(name);
    const size_t n = strlen(text);
    if (g)
        snprintf(text + n, JOB_USER_TEXT_BYTES - n, ":%u", (unsigned)g->gr_gid);
}

void job_user_text(const struct agent_options *o, int64_t job, bool has_device, char ret[JOB_USER_TEXT_BYTES]) {
    snprintf(ret, JOB_USER_TEXT_BYTES, "%u:%u", (unsigned)job_user_of(o, job), (unsigned)getegid());
    if (has_device) {
        group_append(ret, "video");
        group_append(ret, "render");
    }
}

status_t job_user_parse(const char *text, uid_t *ret_first, uid_t *ret_last, struct err *e) {
    unsigned first, last;
    char end;
    if (strspn(text, "0123456789-") != strlen(text) || strlen(text) > 21 ||
        sscanf(text, "%10u-%10u%c", &first, &last, &end) != 2 || first == 0 || first >= last || last > USER_LAST ||
        last - first >= USERS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--job-users: '%s' is not FIRST-LAST: the numbers of 2 to %d users, from 1 to %u", text,
                       USERS_MAX, USER_LAST);
    *ret_first = first;
    *ret_last = last;
    return ST_OK;
}

const char *job_user_missing(const struct agent_options *o) {
    return o->worker_user && !job_user_is_own(o)
               ? "jobs are not separated by their users: all run as the same one (see --job-users)"
               : NULL;
}
