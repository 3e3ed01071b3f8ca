/* The control groups of this host's ranks: limits that hold for all processes of a rank, whatever they do, and for all
 * ranks together.
 *
 *     cs = cgroups_open(&options);                      // cgroups_missing(cs, i) says what cannot be enforced
 *     TRY(cgroup_open(cs, name, &limits, &g, e));
 *     TRY(cgroup_add(g, pid, e));                       // the worker, before it gets its start order
 *     cgroup_facts_read(g, &facts);                     // at any time: what has reached a limit
 *     g = cgroup_close(g);                              // kills what is left; the group is removed a moment later
 *
 * In each hierarchy of cgroup v1, or in cgroup v2, below the group that the agent was started in:
 *
 *     trainyard-ID/              all ranks: memory (no swap), CPU
 *       job-7-attempt-1-rank-0/  one rank: processes, and memory if the spec limits it
 *     trainyard-ID-agent/        the agent itself, with cgroup v2 only, which forbids processes beside groups
 *
 * What a host does not allow is left out and listed: without a single group everything works, without limits.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_CGROUPS_H
#define EXECUTOR_AGENT_CGROUPS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroups_options {
    struct reactor *loop; /* NULL: groups whose processes have not ended stay until cgroups_close */
    const char *id;       /* of the executor */
    const char *record;   /* a file of the agent's, which lists the groups for its next start */
    int64_t memory_bytes; /* of all ranks; 0: the host's, less a reserve */
    int cores;            /* of all ranks; 0: no limit */
    bool same_user;       /* ranks are the agent's user, and could change their groups */
    bool keep;            /* ranks were handed over: the groups stay, for cgroup_reopen */
};

struct cgroups;

/* Removes the groups of an earlier agent, with their processes, and makes those of this one. What fails is listed as
 * missing. The strings of the options must stay valid. */
struct cgroups *cgroups_open(const struct cgroups_options *options);
struct cgroups *cgroups_close(struct cgroups *cs); /* waits for killed processes, for at most 5 s; NULL is fine */
CLEANUP_DEFINE(struct cgroups *, cgroups_close)

/* The i-th sentence about what is not enforced: "memory is not limited: ..."; NULL after the last. */
const char *cgroups_missing(const struct cgroups *cs, size_t i);

/* Bytes that all ranks together may use; 0: not limited. */
int64_t cgroups_memory_bytes(const struct cgroups *cs);

struct cgroup_limits {
    int64_t memory_bytes;  /* 0: only that of all ranks */
    int64_t processes_max; /* processes and threads */
};

struct cgroup;
/* name: of a folder, and new. A limit that is listed as missing is left out; any other that cannot be set is an error.
 */
MUST_CHECK status_t cgroup_open(struct cgroups *cs, const char *name, const struct cgroup_limits *limits,
                                struct cgroup **ret, struct err *e);
/* The group of a process that was handed over, with its limits. */
struct cgroup *cgroup_reopen(struct cgroups *cs, const char *name, const struct cgroup_limits *limits);
const char *cgroup_name(const struct cgroup *g);
const struct cgroup_limits *cgroup_limits_of(const struct cgroup *g);
struct cgroup *cgroup_close(struct cgroup *g); /* NULL is fine */
MUST_CHECK status_t cgroup_add(struct cgroup *g, pid_t pid, struct err *e);
void cgroup_kill(struct cgroup *g); /* every process in it; NULL is fine */

enum cgroup_memory {
    CGROUP_MEMORY_ENOUGH,
    CGROUP_MEMORY_OWN,  /* the limit of the rank */
    CGROUP_MEMORY_ALL,  /* the limit of all ranks */
    CGROUP_MEMORY_HOST, /* another limit: the host's memory, or a group above the agent's */
};

struct cgroup_facts {
    enum cgroup_memory memory; /* the limit for which the kernel last killed a process of this group */
    int64_t kills;             /* for memory */
    int64_t forks_refused;     /* because of processes_max */
};
/* g NULL: nothing has happened. Limits that run out between two readings cannot be told apart: read every few seconds.
 */
void cgroup_facts_read(struct cgroup *g, struct cgroup_facts *ret);

/* "memory ran out: ...", for facts->memory other than ENOUGH. */
void cgroup_memory_sentence(const struct cgroup *g, const struct cgroup_facts *facts, char *ret, size_t n);

#endif
