/* A tree is the agent's part of one hierarchy: `own`, the group that it was started in, and `all`, the group of all
 * ranks. cgroup v2 has one tree with every controller; cgroup v1 has a tree for each mounted hierarchy.
 *
 * In cgroup v2 a group that gives controllers to groups below it has no processes of its own, unless it is the root of
 * the host. The agent therefore moves itself into a group beside `all` if the kernel refuses (EBUSY). If another
 * process is left in `own`, the kernel refuses again; then the agent moves back, and nothing is limited.
 *
 * Which limit ran out: when the kernel has killed a process, the counts of limits that could not be kept are compared
 * with those of the reading before the last, since a count changes a moment before the kill. If both the rank's limit
 * and that of all ranks could not be kept in that time, the limit of all ranks is named: it is not fatal to the job. */
#include "executor/agent/cgroups.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/cgroup_folder.h"
#include "executor/agent/cgroup_ooms.h"
#include "executor/agent/cgroup_places.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "trainyard-"
enum {
    MISSING_MAX = 8,
    MISSING_BYTES = sizeof(struct err),
    NAME_BYTES = 128,
    AGAIN_MS = 20,
    AGAIN_MAX_MS = 5000,
    TRIES_LOGGED = 8, /* after 2.5 s */
    CLOSE_MS = 5000,
    PERIOD_US = 100000,
    RECORD_MAX_BYTES = 16 << 10,
    SHARED_PART = 16,
    USAGE_SLACK_BYTES = 2 << 20, /* the kernel charges in batches */
};
static const int64_t MIB = 1 << 20;

struct tree {
    char place[CGROUP_PATH_BYTES]; /* where this process was found: `own`, or `agent` */
    char own[CGROUP_PATH_BYTES], all[CGROUP_PATH_BYTES + 64], agent[CGROUP_PATH_BYTES + 64];
    size_t n_mount;
    bool unified, moved, has[CGROUP_CONTROLLERS];
};

struct memory_counts {
    int64_t kills, own, all; /* of the group; limits that could not be kept: the group's, and that of all ranks */
};

struct cgroup {
    struct cgroups *owner;
    char name[NAME_BYTES];
    struct cgroup_limits limits;
    struct cgroup_ooms ooms;
    struct memory_counts before, last; /* at the reading before the last one, and at the last one */
    enum cgroup_memory memory;         /* of the last kill */
    struct cgroup *next;               /* of those that are being removed */
    int tries;                         /* to remove it */
};

struct cgroups {
    struct cgroups_options o;
    struct tree trees[CGROUP_CONTROLLERS];
    size_t n_trees;
    int64_t memory_bytes;
    struct cgroup_ooms ooms;                      /* of all ranks */
    char lost[CGROUP_CONTROLLERS][MISSING_BYTES]; /* why a controller has no tree */
    char missing[MISSING_MAX][MISSING_BYTES];
    size_t n_missing;
    struct cgroup *removing;
    struct reactor_timer again;
    int64_t again_ms; /* until the next try; it doubles */
    int64_t n_open;
};

static const char *const limited[CGROUP_CONTROLLERS] = {
    [CGROUP_MEMORY] = "the memory of ranks is not limited",
    [CGROUP_PIDS] = "the number of a rank's processes is not limited",
    [CGROUP_CPU] = "the CPU time of ranks is not limited",
};

static void missing_add(struct cgroups *cs, const char *what, const char *why) {
    if (cs->n_missing < MISSING_MAX)
        snprintf(cs->missing[cs->n_missing++], MISSING_BYTES, "%s: %.400s", what, why);
}

const char *cgroups_missing(const struct cgroups *cs, size_t i) { return i < cs->n_missing ? cs->missing[i] : NULL; }

static const struct tree *tree_with(const struct cgroups *cs, enum cgroup_controller c) {
    for (size_t i = 0; i < cs->n_trees; i++)
        if (cs->trees[i].has[c])
            return &cs->trees[i];
    return NULL;
}

int64_t cgroups_memory_bytes(const struct cgroups *cs) { return tree_with(cs, CGROUP_MEMORY) ? cs->memory_bytes : 0; }

/* ---- limits ---- */

static bool host_swaps(void) {
    CLEANUP(fclosep) FILE *f = fopen("/proc/swaps", "re");
    char line[512];
    return f && fgets(line, sizeof line, f) && fgets(line, sizeof line, f);
}

/* Swap would only delay the end of a rank that uses too much memory, and slow the host down. */
static status_t memory_limit(const struct tree *t, const char *folder, int64_t bytes, struct err *e) {
    if (!t->unified) {
        TRY(cgroup_folder_write_number(folder, "memory.limit_in_bytes", bytes, e));
        return cgroup_folder_has(folder, "memory.memsw.limit_in_bytes")
                   ? cgroup_folder_write_number(folder, "memory.memsw.limit_in_bytes", bytes, e)
                   : ST_OK;
    }
    TRY(cgroup_folder_write_number(folder, "memory.max", bytes, e));
    return cgroup_folder_has(folder, "memory.swap.max") ? cgroup_folder_write(folder, "memory.swap.max", "0", e)
                                                        : ST_OK;
}

static status_t cpu_limit(const struct tree *t, int cores, struct err *e) {
    char text[48];
    const long long quota = (long long)cores * PERIOD_US;
    if (t->unified) {
        snprintf(text, sizeof text, "%lld %d", quota, PERIOD_US);
        return cgroup_folder_write(t->all, "cpu.max", text, e);
    }
    TRY(cgroup_folder_write_number(t->all, "cpu.cfs_period_us", PERIOD_US, e));
    return cgroup_folder_write_number(t->all, "cpu.cfs_quota_us", quota, e);
}

/* The host's memory, or less if a group that the agent is in has a limit. */
static int64_t memory_given(const struct tree *t) {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    int64_t min = (int64_t)pages * page_bytes;
    char folder[CGROUP_PATH_BYTES];
    memcpy(folder, t->own, sizeof folder);
    while (strlen(folder) >= t->n_mount) {
        const int64_t limit = cgroup_folder_number(folder, t->unified ? "memory.max" : "memory.limit_in_bytes", NULL);
        min = limit > 0 && limit < min ? limit : min;
        char *last = strrchr(folder, '/');
        if (!last)
            break;
        *last = '\0';
    }
    return min;
}

/* A sixteenth, between 512 MiB and 8 GiB, but never more than a half. */
static int64_t memory_default(int64_t given) {
    int64_t reserve = given / 16;
    reserve = reserve < 512 * MIB ? 512 * MIB : reserve;
    reserve = reserve > 8192 * MIB ? 8192 * MIB : reserve;
    return given - (reserve < given / 2 ? reserve : given / 2);
}

static status_t tree_limit(struct cgroups *cs, struct tree *t, enum cgroup_controller c, struct err *e) {
    if (c == CGROUP_CPU)
        return cs->o.cores > 0 ? cpu_limit(t, cs->o.cores, e) : ST_OK;
    if (c != CGROUP_MEMORY)
        return ST_OK;
    if (!t->unified && cgroup_folder_number(t->all, "memory.use_hierarchy", NULL) == 0)
        TRY(cgroup_folder_write(t->all, "memory.use_hierarchy", "1", e));
    cs->memory_bytes = cs->o.memory_bytes ? cs->o.memory_bytes : memory_default(memory_given(t));
    TRY(memory_limit(t, t->all, cs->memory_bytes, e));
    cs->ooms = cgroup_ooms_open(t->all, t->unified);
    if (host_swaps() && !cgroup_folder_has(t->all, t->unified ? "memory.swap.max" : "memory.memsw.limit_in_bytes"))
        missing_add(cs, "ranks may use swap beyond their memory",
                    "this kernel does not account swap to control groups");
    return ST_OK;
}

/* ---- trees ---- */

static status_t controller_enable(const char *folder, enum cgroup_controller c, struct err *e) {
    char text[32];
    snprintf(text, sizeof text, "+%s", cgroup_controller_name(c));
    return cgroup_folder_write(folder, "cgroup.subtree_control", text, e);
}

static void controllers_disable(const struct tree *t) {
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        char text[32];
        snprintf(text, sizeof text, "-%s", cgroup_controller_name((enum cgroup_controller)c));
        status_ignore(cgroup_folder_write(t->own, "cgroup.subtree_control", text, NULL));
    }
}

/* The process "0" is the one that writes. */
static void tree_move_back(struct tree *t) {
    controllers_disable(t);
    if (cgroup_folder_write(t->own, "cgroup.procs", "0", NULL) == ST_OK)
        rmdir(t->agent);
    t->moved = false;
}

static void controller_lose(struct cgroups *cs, struct tree *t, int c, const struct err *why) {
    t->has[c] = false;
    snprintf(cs->lost[c], MISSING_BYTES, "%s", why->msg);
}

static status_t tree_move(struct tree *t, struct err *e) {
    if (t->moved)
        return ST_OK;
    if (mkdir(t->agent, 0755) < 0 && errno != EEXIST)
        return err_errno(e, "make the control group '%s'", t->agent);
    TRY(cgroup_folder_write(t->agent, "cgroup.procs", "0", e));
    t->moved = true;
    return ST_OK;
}

/* The kernel gives pids and cpu also to groups beside processes, but not memory. All or none are taken, so that the
 * agent does not stay beside them. */
static status_t controllers_enable(const struct tree *t, struct err *e) {
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        status_t st = t->has[c] ? controller_enable(t->own, (enum cgroup_controller)c, e) : ST_OK;
        if (st != ST_OK) {
            controllers_disable(t);
            return st;
        }
    }
    return ST_OK;
}

static status_t tree_enable(struct tree *t, struct err *e) {
    struct err why;
    if (controllers_enable(t, &why) == ST_OK)
        return ST_OK;
    TRY(tree_move(t, e));
    status_t st = controllers_enable(t, &why);
    if (st == ST_OK)
        return ST_OK;
    tree_move_back(t);
    return err_set(e, st,
                   "%.240s (if the group has other processes: start the executor in a group of its own that it may "
                   "change, as Delegate=yes of systemd does)",
                   why.msg);
}

static status_t tree_make(struct cgroups *cs, struct tree *t, struct err *e) {
    if (t->unified)
        TRY(tree_enable(t, e));
    if (!cs->o.keep || !cgroup_folder_has(t->all, "cgroup.procs"))
        TRY(cgroup_folder_make(t->all, e));
    for (int c = 0; t->unified && c < CGROUP_CONTROLLERS; c++)
        if (t->has[c] && controller_enable(t->all, (enum cgroup_controller)c, e) != ST_OK)
            controller_lose(cs, t, c, e);
    return ST_OK;
}

static void tree_remove(struct tree *t, deadline_ms_t end) {
    while (!cgroup_folder_remove(t->all) && clock_mono_ms() < end)
        poll(NULL, 0, AGAIN_MS);
    if (t->moved)
        tree_move_back(t);
}

/* The program that this process executed before may have moved it into the agent's group: `own` is above that. */
static bool own_leave(char *own, const char *id) {
    char agent[64];
    const int n = snprintf(agent, sizeof agent, "/" PREFIX "%.40s-agent", id);
    const size_t length = strlen(own);
    if (length <= (size_t)n || strcmp(own + length - (size_t)n, agent) != 0)
        return false;
    own[length - (size_t)n] = '\0';
    return true;
}

static struct tree *tree_add(struct cgroups *cs, const struct cgroup_place *place) {
    for (size_t i = 0; i < cs->n_trees; i++)
        if (strcmp(cs->trees[i].place, place->own) == 0)
            return &cs->trees[i];
    struct tree *t = &cs->trees[cs->n_trees++];
    *t = (struct tree){ .n_mount = place->n_mount, .unified = place->unified };
    char own[CGROUP_PATH_BYTES];
    memcpy(own, place->own, sizeof own);
    memcpy(t->place, place->own, sizeof t->place);
    t->moved = own_leave(own, cs->o.id);
    memcpy(t->own, own, sizeof t->own);
    snprintf(t->all, sizeof t->all, "%.1000s/" PREFIX "%.40s", own, cs->o.id);
    snprintf(t->agent, sizeof t->agent, "%.1000s/" PREFIX "%.40s-agent", own, cs->o.id);
    return t;
}

/* ---- the record ---- */

static status_t record_write(const struct cgroups *cs, struct err *e) {
    struct bytes text;
    status_t st = ST_OK;
    bytes_init(&text, RECORD_MAX_BYTES);
    for (size_t i = 0; i < cs->n_trees && st == ST_OK; i++) {
        st = bytes_append(&text, cs->trees[i].all, strlen(cs->trees[i].all), e);
        if (st == ST_OK)
            st = bytes_append(&text, "\n", 1, e);
    }
    if (st == ST_OK)
        st = file_write_atomic(cs->o.record, text.data ? text.data : "", text.len, 0600, e);
    bytes_done(&text);
    return st;
}

/* The file is written by an agent only. A damaged one must not empty the group of anything else. */
static void leftover_remove(const char *path, const char *id, deadline_ms_t end) {
    const char *name = strrchr(path, '/');
    char wanted[64];
    snprintf(wanted, sizeof wanted, "/" PREFIX "%.40s", id);
    if (!name || strcmp(name, wanted) != 0 || !cgroup_folder_has(path, "cgroup.procs"))
        return;
    while (!cgroup_folder_remove(path) && clock_mono_ms() < end)
        poll(NULL, 0, AGAIN_MS);
}

static void leftovers_remove(const struct cgroups *cs) {
    const deadline_ms_t end = deadline_in(CLOSE_MS);
    struct bytes text;
    bytes_init(&text, RECORD_MAX_BYTES);
    if (file_read(cs->o.record, &text, NULL) == ST_OK && bytes_append(&text, "", 1, NULL) == ST_OK)
        for (char *line = text.data, *newline; (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = '\0';
            leftover_remove(line, cs->o.id, end);
        }
    bytes_done(&text);
}

/* ---- from start to end ---- */

static void tree_open(struct cgroups *cs, struct tree *t) {
    struct err why;
    const bool made = tree_make(cs, t, &why) == ST_OK;
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (t->has[c] && (!made || tree_limit(cs, t, (enum cgroup_controller)c, &why) != ST_OK))
            controller_lose(cs, t, c, &why);
}

static void trees_open(struct cgroups *cs) {
    struct cgroup_place places[CGROUP_CONTROLLERS];
    struct err why;
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", places);
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        snprintf(cs->lost[c], MISSING_BYTES, "its controller is not mounted, or not given to the executor's group");
        if (*places[c].own)
            tree_add(cs, &places[c])->has[c] = true;
    }
    if (record_write(cs, &why) != ST_OK) /* before the groups exist */
        for (int c = 0; c < CGROUP_CONTROLLERS; c++)
            snprintf(cs->lost[c], MISSING_BYTES, "%s", why.msg);
    else
        for (size_t i = 0; i < cs->n_trees; i++)
            tree_open(cs, &cs->trees[i]);
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (!tree_with(cs, (enum cgroup_controller)c) && (c != CGROUP_CPU || cs->o.cores > 0))
            missing_add(cs, limited[c], cs->lost[c]);
}

static void groups_remove(struct cgroups *cs);

static void again(void *ctx) { groups_remove(ctx); }

struct cgroups *cgroups_open(const struct cgroups_options *options) {
    struct cgroups *cs = alloc_zeroed(1, sizeof *cs);
    cs->o = *options;
    cs->again = (struct reactor_timer){ .fire = again, .ctx = cs };
    cs->ooms.events = -1;
    if (!options->keep)
        leftovers_remove(cs);
    trees_open(cs);
    if (options->same_user && (tree_with(cs, CGROUP_MEMORY) || tree_with(cs, CGROUP_PIDS)))
        missing_add(cs, "a rank can leave its control groups with their limits",
                    "it runs as the executor's user (see --job-users and --worker-user)");
    return cs;
}

struct cgroups *cgroups_close(struct cgroups *cs) {
    if (!cs)
        return NULL;
    if (cs->o.loop)
        reactor_timer_cancel(cs->o.loop, &cs->again);
    cgroup_ooms_close(&cs->ooms);
    const deadline_ms_t end = deadline_in(CLOSE_MS); /* of all trees together: systemd waits for the agent */
    for (size_t i = 0; i < cs->n_trees; i++)
        tree_remove(&cs->trees[i], end);
    for (struct cgroup *g; (g = cs->removing);) {
        cs->removing = g->next;
        free(g);
    }
    unlink(cs->o.record);
    free(cs);
    return NULL;
}

/* ---- groups ---- */

static void folder_of(const struct tree *t, const struct cgroup *g, char ret[CGROUP_PATH_BYTES]) {
    snprintf(ret, CGROUP_PATH_BYTES, "%.880s/%s", t->all, g->name);
}

static bool tree_is_used(const struct tree *t) {
    return t->has[CGROUP_MEMORY] || t->has[CGROUP_PIDS] || t->has[CGROUP_CPU];
}

static int64_t not_negative(int64_t n) { return n > 0 ? n : 0; }

static struct memory_counts memory_count(struct cgroup *g, const struct tree *t) {
    char folder[CGROUP_PATH_BYTES];
    folder_of(t, g, folder);
    struct memory_counts ret = { .kills = not_negative(cgroup_folder_number(
                                     folder, t->unified ? "memory.events" : "memory.oom_control", "oom_kill")) };
    ret.own = cgroup_ooms_read(&g->ooms, folder);
    ret.all = cgroup_ooms_read(&g->owner->ooms, t->all);
    ret.own -= t->unified ? 0 : ret.all;
    return ret;
}

/* With memory.oom.group the kernel ends the whole rank: a program that lost a child could wait for it forever. */
static status_t group_limit(const struct tree *t, struct cgroup *g, struct err *e) {
    char folder[CGROUP_PATH_BYTES];
    folder_of(t, g, folder);
    TRY(cgroup_folder_make(folder, e));
    if (t->has[CGROUP_PIDS] && g->limits.processes_max > 0)
        TRY(cgroup_folder_write_number(folder, "pids.max", g->limits.processes_max, e));
    if (!t->has[CGROUP_MEMORY])
        return ST_OK;
    if (cgroup_folder_has(folder, "memory.oom.group"))
        TRY(cgroup_folder_write(folder, "memory.oom.group", "1", e));
    g->ooms = cgroup_ooms_open(folder, t->unified);
    g->before = g->last = memory_count(g, t);
    return g->limits.memory_bytes > 0 ? memory_limit(t, folder, g->limits.memory_bytes, e) : ST_OK;
}

status_t cgroup_open(struct cgroups *cs, const char *name, const struct cgroup_limits *limits, struct cgroup **ret,
                     struct err *e) {
    struct cgroup *g = alloc_zeroed(1, sizeof *g);
    *g = (struct cgroup){ .owner = cs, .limits = *limits, .ooms = { .events = -1 } };
    cs->n_open++;
    snprintf(g->name, sizeof g->name, "%s", name);
    for (size_t i = 0; i < cs->n_trees; i++) {
        status_t st = tree_is_used(&cs->trees[i]) ? group_limit(&cs->trees[i], g, e) : ST_OK;
        if (st != ST_OK) {
            cgroup_close(g);
            return st;
        }
    }
    *ret = g;
    return ST_OK;
}

struct cgroup *cgroup_reopen(struct cgroups *cs, const char *name, const struct cgroup_limits *limits) {
    struct cgroup *g = alloc_zeroed(1, sizeof *g);
    *g = (struct cgroup){ .owner = cs, .limits = *limits, .ooms = { .events = -1 } };
    cs->n_open++;
    snprintf(g->name, sizeof g->name, "%s", name);
    const struct tree *t = tree_with(cs, CGROUP_MEMORY);
    if (t) {
        char folder[CGROUP_PATH_BYTES];
        folder_of(t, g, folder);
        g->ooms = cgroup_ooms_open(folder, t->unified);
        g->before = g->last = memory_count(g, t);
    }
    return g;
}

const char *cgroup_name(const struct cgroup *g) { return g->name; }
const struct cgroup_limits *cgroup_limits_of(const struct cgroup *g) { return &g->limits; }

status_t cgroup_add(struct cgroup *g, pid_t pid, struct err *e) {
    char folder[CGROUP_PATH_BYTES];
    for (size_t i = 0; i < g->owner->n_trees; i++)
        if (tree_is_used(&g->owner->trees[i])) {
            folder_of(&g->owner->trees[i], g, folder);
            TRY(cgroup_folder_write_number(folder, "cgroup.procs", pid, e));
        }
    return ST_OK;
}

void cgroup_kill(struct cgroup *g) {
    char folder[CGROUP_PATH_BYTES];
    for (size_t i = 0; g && i < g->owner->n_trees; i++)
        if (tree_is_used(&g->owner->trees[i])) {
            folder_of(&g->owner->trees[i], g, folder);
            cgroup_folder_kill(folder);
        }
}

static bool group_remove(const struct cgroup *g) {
    char folder[CGROUP_PATH_BYTES];
    bool gone = true;
    for (size_t i = 0; i < g->owner->n_trees; i++)
        if (tree_is_used(&g->owner->trees[i])) {
            folder_of(&g->owner->trees[i], g, folder);
            gone &= cgroup_folder_remove(folder);
        }
    return gone;
}

/* Files in /dev/shm outlive the ranks that wrote them, and stay charged. */
static void shared_memory_log(const struct cgroups *cs) {
    const struct tree *t = tree_with(cs, CGROUP_MEMORY);
    const int64_t bytes = t ? cgroup_folder_number(t->all, "memory.stat", t->unified ? "shmem" : "total_shmem") : 0;
    if (bytes > cs->memory_bytes / SHARED_PART)
        log_event(LOG_WARN, "shared_memory_left", "bytes", LOG_INT(bytes), "of", LOG_INT(cs->memory_bytes), "message",
                  LOG_STR("no rank is left, but files that ranks left in /dev/shm use a part of --memory-mib: remove "
                          "them"),
                  NULL);
}

/* Killed processes need a moment to end; one that waits for a broken disk may need hours. */
static void groups_remove(struct cgroups *cs) {
    for (struct cgroup **link = &cs->removing, *g; (g = *link);) {
        if (!group_remove(g)) {
            if (++g->tries == TRIES_LOGGED)
                log_event(LOG_WARN, "control_group_stays", "group", LOG_STR(g->name), "message",
                          LOG_STR("a process in it was killed and has not ended: the group is removed when it has"),
                          NULL);
            link = &g->next;
            continue;
        }
        *link = g->next;
        free(g);
        if (!cs->removing && cs->n_open == 0)
            shared_memory_log(cs);
    }
    if (cs->removing && cs->o.loop)
        reactor_timer_set(cs->o.loop, &cs->again, cs->again_ms);
    cs->again_ms = 2 * cs->again_ms < AGAIN_MAX_MS ? 2 * cs->again_ms : AGAIN_MAX_MS;
}

struct cgroup *cgroup_close(struct cgroup *g) {
    if (g) {
        cgroup_ooms_close(&g->ooms);
        g->next = g->owner->removing;
        g->owner->removing = g;
        g->owner->n_open--;
        g->owner->again_ms = AGAIN_MS;
        groups_remove(g->owner);
    }
    return NULL;
}

/* ---- what has happened ---- */

/* In cgroup v1 the count of all ranks has also the groups above: then their usage has not reached the limit. */
static bool all_ran_out(const struct cgroup *g, const struct tree *t, const struct memory_counts *now) {
    const int64_t used = t->unified ? g->owner->memory_bytes
                                    : cgroup_folder_number(t->all, "memory.max_usage_in_bytes", NULL);
    return now->all > g->before.all && used >= g->owner->memory_bytes - USAGE_SLACK_BYTES;
}

static void memory_read(struct cgroup *g, const struct tree *t) {
    const struct memory_counts now = memory_count(g, t);
    if (now.kills > g->last.kills) {
        const bool own = g->limits.memory_bytes > 0 && now.own > g->before.own && now.all == g->before.all;
        g->memory = own ? CGROUP_MEMORY_OWN : all_ran_out(g, t, &now) ? CGROUP_MEMORY_ALL : CGROUP_MEMORY_HOST;
    }
    g->before = g->last;
    g->last = now;
}

void cgroup_facts_read(struct cgroup *g, struct cgroup_facts *ret) {
    char folder[CGROUP_PATH_BYTES];
    *ret = (struct cgroup_facts){ .memory = CGROUP_MEMORY_ENOUGH };
    const struct tree *memory = g ? tree_with(g->owner, CGROUP_MEMORY) : NULL;
    const struct tree *pids = g ? tree_with(g->owner, CGROUP_PIDS) : NULL;
    if (pids) {
        folder_of(pids, g, folder);
        ret->forks_refused = not_negative(cgroup_folder_number(folder, "pids.events", "max"));
    }
    if (!memory)
        return;
    memory_read(g, memory);
    ret->memory = g->memory;
    ret->kills = g->last.kills;
}

static const char *amount(int64_t bytes, char ret[32]) {
    const bool large = bytes >= 1024 * MIB;
    snprintf(ret, 32, "%.1f %s", (double)bytes / (double)(large ? 1024 * MIB : MIB), large ? "GiB" : "MiB");
    return ret;
}

void cgroup_memory_sentence(const struct cgroup *g, const struct cgroup_facts *facts, char *ret, size_t n) {
    char text[32];
    if (facts->memory == CGROUP_MEMORY_OWN)
        snprintf(ret, n,
                 "memory ran out: its processes used all of their %s (resources.memory_bytes), and the kernel "
                 "killed one",
                 amount(g->limits.memory_bytes, text));
    else if (facts->memory == CGROUP_MEMORY_ALL)
        snprintf(ret, n,
                 "memory ran out: the ranks of this executor together used all of their %s (--memory-mib), and "
                 "the kernel killed a process of this rank; files in /dev/shm count, also those of ended ranks",
                 amount(g->owner->memory_bytes, text));
    else
        snprintf(ret, n,
                 "memory ran out on the host, or in a control group above the executor's, and the kernel "
                 "killed a process of this rank");
}
