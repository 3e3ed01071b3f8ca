#include "engine/collective/open_files.h"

#include "base/limits.h"

#include <sys/resource.h>

/* Data files, pipes, and what libraries keep open; and the files of a checkpoint that the largest gang wrote, as far as
 * the hard limit permits. */
enum { OTHER_FILES = 512, CHECKPOINT_FILES = LIMIT_WORLD_SIZE };

status_t open_files_allow(int sockets, struct err *e) {
    const rlim_t needed = (rlim_t)sockets + OTHER_FILES, wanted = needed + CHECKPOINT_FILES;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return err_errno(e, "read the limit of open files");
    if (limit.rlim_max < needed)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "a rank with %d peers needs %llu open files, but this host allows a process %llu: raise "
                       "LimitNOFILE of the executor's service, or ulimit -n",
                       sockets, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    if (limit.rlim_cur >= wanted)
        return ST_OK;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? ST_OK : err_errno(e, "raise the limit of open files");
}
