/* Control groups: where they are (texts of several hosts), and with the kernel's own files, in cgroup v1 or v2, what
 * their limits do. The tests with the kernel need a group in which this process may make groups: as root, or delegated.
 */
#include "base/clock.h"
#include "base/file.h"
#include "executor/agent/cgroup_folder.h"
#include "executor/agent/cgroup_places.h"
#include "executor/agent/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20, BLOCKS_MAX = 4096, CLOSE_MS = 5000 /* cgroups.h */ };

static char base[64];
static char record[80];

static const char *file(const char *name, const char *text) {
    static char path[4][256];
    static int next;
    char *ret = path[next++ % 4];
    snprintf(ret, sizeof *path, "%s/%s", base, name);
    FILE *f = fopen(ret, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return ret;
}

/* ---- where they are ---- */

static void test_a_host_with_v1_has_a_folder_for_each_controller(void **state) {
    (void)state;
    struct cgroup_place p[CGROUP_CONTROLLERS];
    const char *mounts = file("mounts",
                              "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                              "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
                              "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                              "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    const char *groups = file("groups", "9:cpuset:/x\n5:cpu,cpuacct:/\n4:memory:/system.slice/a.service\n0::/\n");
    cgroup_places_find(mounts, groups, p);
    assert_string_equal(p[CGROUP_MEMORY].own, "/sys/fs/cgroup/memory/system.slice/a.service");
    assert_int_equal(p[CGROUP_MEMORY].n_mount, strlen("/sys/fs/cgroup/memory"));
    assert_false(p[CGROUP_MEMORY].unified);
    assert_string_equal(p[CGROUP_CPU].own, "/sys/fs/cgroup/cpu,cpuacct");
    assert_string_equal(p[CGROUP_PIDS].own, ""); /* not mounted */
}

static void test_in_a_container_the_path_is_below_the_mounted_folder(void **state) {
    (void)state;
    struct cgroup_place p[CGROUP_CONTROLLERS];
    const char *mounts = file("mounts", "34 31 0:31 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    cgroup_places_find(mounts, file("groups", "4:memory:/docker/12/own\n"), p);
    assert_string_equal(p[CGROUP_MEMORY].own, "/sys/fs/cgroup/memory/own");
    cgroup_places_find(mounts, file("groups", "4:memory:/docker/123\n"), p);
    assert_string_equal(p[CGROUP_MEMORY].own, "");
}

static void test_v2_is_preferred_for_the_controllers_that_its_group_has(void **state) {
    (void)state;
    struct cgroup_place p[CGROUP_CONTROLLERS];
    char mounts[512], wanted[128];
    snprintf(mounts, sizeof mounts,
             "30 23 0:27 / %s rw - cgroup2 cgroup2 rw\n34 31 0:31 / /v1/pids rw - cgroup cgroup rw,pids\n", base);
    snprintf(wanted, sizeof wanted, "%s/unit", base);
    mkdir(wanted, 0755);
    file("unit/cgroup.controllers", "cpuset memory hugetlb\n");
    cgroup_places_find(file("mounts", mounts), file("groups", "8:pids:/a\n0::/unit\n"), p);
    assert_true(p[CGROUP_MEMORY].unified);
    assert_string_equal(p[CGROUP_MEMORY].own, wanted);
    assert_false(p[CGROUP_PIDS].unified);
    assert_string_equal(p[CGROUP_PIDS].own, "/v1/pids/a");
    assert_string_equal(p[CGROUP_CPU].own, "");
    cgroup_places_find("/none", "/none", p);
    assert_string_equal(p[CGROUP_MEMORY].own, "");
}

/* ---- what they do ---- */

static const char memory[] = "memory", processes[] = "processes";

/* The sentence about a limit that is not enforced here; NULL: it is enforced. */
static const char *missing_of(const struct cgroups *cs, const char *limit) {
    const char *sentence;
    for (size_t i = 0; (sentence = cgroups_missing(cs, i)); i++) {
        const char *found = strstr(sentence, limit), *reason = strchr(sentence, ':');
        if (found && reason && found < reason)
            return sentence;
    }
    return NULL;
}

/* Skips the test if the limit that it needs is not enforced here. */
static struct cgroups *groups_open(const char *needs, int64_t memory_bytes) {
    struct cgroups *cs = cgroups_open(
        &(struct cgroups_options){ .id = "test", .record = record, .memory_bytes = memory_bytes, .cores = 1 });
    const char *missing = missing_of(cs, needs);
    if (missing) {
        print_message("not here: %s\n", missing);
        cgroups_close(cs);
        skip();
    }
    return cs;
}

static struct cgroup *group_open_as(struct cgroups *cs, const char *name, int64_t memory_bytes, int64_t n_processes) {
    struct cgroup *g = NULL;
    struct err why = { "" };
    if (cgroup_open(cs, name, &(struct cgroup_limits){ memory_bytes, n_processes }, &g, &why) != ST_OK)
        fail_msg("%s", why.msg);
    return g;
}

static struct cgroup *group_open(struct cgroups *cs, int64_t memory_bytes, int64_t n_processes) {
    return group_open_as(cs, "job-1-attempt-1-rank-0", memory_bytes, n_processes);
}

static void use_memory(void) {
    for (int i = 0; i < BLOCKS_MAX; i++) {
        char *block = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            _exit(3);
        memset(block, 1, MIB);
    }
    _exit(4);
}

static void use_processes(void) {
    for (int i = 0; i < 1000; i++) {
        const pid_t pid = fork();
        if (pid < 0)
            _exit(errno == EAGAIN ? 5 : 6);
        if (pid == 0)
            for (;;)
                pause();
    }
    _exit(7);
}

static void sleep_in_a_session_of_its_own(void) {
    signal(SIGTERM, SIG_IGN);
    setsid();
    for (;;)
        pause();
}

/* A child that does something once it is in the group. */
static pid_t start_in(struct cgroup *g, void (*fn)(void)) {
    int ends[2];
    char go;
    struct err why = { "" };
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (read(ends[0], &go, 1) == 1)
            fn();
        _exit(8);
    }
    if (cgroup_add(g, pid, &why) != ST_OK)
        fail_msg("%s", why.msg);
    assert_int_equal(write(ends[1], "g", 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void memory_test(int64_t of_all, int64_t of_rank, enum cgroup_memory wanted, const char *sentence) {
    struct cgroups *cs = groups_open(memory, of_all);
    struct cgroup *g = group_open(cs, of_rank, 100);
    struct cgroup_facts facts;
    char text[240];
    cgroup_facts_read(g, &facts);
    assert_int_equal(facts.memory, CGROUP_MEMORY_ENOUGH);
    const int status = wait_for(start_in(g, use_memory));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cgroup_facts_read(g, &facts);
    assert_int_equal(facts.memory, wanted);
    assert_true(facts.kills >= 1);
    cgroup_memory_sentence(g, &facts, text, sizeof text);
    assert_string_equal(text, sentence);
    cgroup_close(g);
    cgroups_close(cs);
}

static void test_the_kernel_kills_a_rank_that_uses_more_than_its_memory(void **state) {
    (void)state;
    memory_test(512LL * MIB, 64LL * MIB, CGROUP_MEMORY_OWN,
                "memory ran out: its processes used all of their 64.0 MiB (resources.memory_bytes), and the kernel "
                "killed one");
}

static void test_the_limit_of_all_ranks_is_told_from_that_of_a_rank(void **state) {
    (void)state;
    memory_test(96LL * MIB, 0, CGROUP_MEMORY_ALL,
                "memory ran out: the ranks of this executor together used all of their 96.0 MiB (--memory-mib), and "
                "the kernel killed a process of this rank; files in /dev/shm count, also those of ended ranks");
    memory_test(96LL * MIB, 512LL * MIB, CGROUP_MEMORY_ALL,
                "memory ran out: the ranks of this executor together used all of their 96.0 MiB (--memory-mib), and "
                "the kernel killed a process of this rank; files in /dev/shm count, also those of ended ranks");
}

static const char *large_file;

/* The kernel drops the file's pages when the group has no memory left. */
static void read_more_than_the_limit(void) {
    static char block[MIB];
    char *used = mmap(NULL, 40 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(used, 1, 40 * MIB);
    FILE *adjust = fopen("/proc/self/oom_score_adj", "we"), *f = fopen(large_file, "re");
    if (!adjust || fputs("1000", adjust) < 0 || fclose(adjust) != 0 || !f) /* the first that the kernel chooses */
        _exit(9);
    while (fread(block, 1, MIB, f) == MIB)
        continue;
    fclose(f);
    raise(SIGSTOP);
    _exit(10);
}

static void large_file_make(void) {
    static const char block[MIB];
    large_file = file("large", "");
    FILE *f = fopen(large_file, "we");
    for (int i = 0; i < 100; i++)
        assert_int_equal(fwrite(block, 1, MIB, f), MIB);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(fsync(fileno(f)), 0);
    posix_fadvise(fileno(f), 0, 0, POSIX_FADV_DONTNEED); /* whoever reads it is charged */
    fclose(f);
}

static void test_page_cache_that_reached_a_limit_is_not_the_cause_of_a_kill(void **state) {
    (void)state;
    struct cgroups *cs = groups_open(memory, 160LL * MIB);
    struct cgroup *reads = group_open(cs, 64LL * MIB, 100);
    struct cgroup *uses = group_open_as(cs, "job-2-attempt-1-rank-0", 0, 100);
    struct cgroup_facts facts;
    int status;
    large_file_make();
    const pid_t pid = start_in(reads, read_more_than_the_limit);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    cgroup_facts_read(reads, &facts);
    assert_int_equal(facts.memory, CGROUP_MEMORY_ENOUGH);
    wait_for(start_in(uses, use_memory));
    assert_true(WIFSIGNALED(wait_for(pid)));
    cgroup_facts_read(reads, &facts);
    assert_int_equal(facts.kills, 1);
    assert_int_equal(facts.memory, CGROUP_MEMORY_ALL);
    cgroup_close(reads);
    cgroup_close(uses);
    struct cgroup *later = group_open_as(cs, "job-3-attempt-1-rank-0", 64LL * MIB, 100);
    wait_for(start_in(later, use_memory));
    cgroup_facts_read(later, &facts);
    assert_int_equal(facts.memory, CGROUP_MEMORY_OWN); /* what happened before it does not count */
    cgroup_close(later);
    cgroups_close(cs);
}

static void test_a_rank_starts_no_more_processes_than_it_may(void **state) {
    (void)state;
    struct cgroups *cs = groups_open(processes, 0);
    struct cgroup *g = group_open(cs, 0, 20);
    struct cgroup_facts facts;
    const int status = wait_for(start_in(g, use_processes));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
    cgroup_facts_read(g, &facts);
    assert_true(facts.forks_refused >= 1);
    assert_int_equal(facts.memory, CGROUP_MEMORY_ENOUGH);
    cgroup_close(g);
    cgroups_close(cs); /* with the processes that are left: the test below finds none */
}

static void test_a_process_that_ignores_signals_ends_with_its_group(void **state) {
    (void)state;
    struct cgroups *cs = groups_open(processes, 0);
    struct cgroup *g = group_open(cs, 0, 100);
    const pid_t pid = start_in(g, sleep_in_a_session_of_its_own);
    cgroup_close(g);
    assert_true(WIFSIGNALED(wait_for(pid)));
    cgroups_close(cs);
    struct cgroup_place places[CGROUP_CONTROLLERS];
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", places);
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) /* nothing is left, and this process is where it was before */
        assert_false(cgroup_folder_has(places[c].own, "trainyard-test") ||
                     cgroup_folder_has(places[c].own, "trainyard-test-agent") ||
                     strstr(places[c].own, "trainyard-test"));
}

/* ---- what stays ---- */

static int log_pipe[2], log_before;

static void log_catch(void) {
    assert_int_equal(pipe(log_pipe), 0);
    log_before = dup(STDERR_FILENO);
    dup2(log_pipe[1], STDERR_FILENO);
    close(log_pipe[1]);
}

static const char *log_caught(void) {
    static char text[4096];
    dup2(log_before, STDERR_FILENO); /* closes the last end that writes */
    close(log_before);
    const ssize_t n = read(log_pipe[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(log_pipe[0]);
    return text;
}

static void leave_shared_memory(void) {
    static const char block[MIB];
    FILE *f = fopen("/dev/shm/trainyard-test-cgroups", "we");
    for (int i = 0; f && i < 20; i++)
        if (fwrite(block, 1, MIB, f) != MIB)
            _exit(3);
    _exit(f && fclose(f) == 0 ? 0 : 4);
}

static void test_shared_memory_that_ended_ranks_left_is_logged(void **state) {
    (void)state;
    struct statfs shm;
    if (statfs("/dev/shm", &shm) < 0 || shm.f_type != TMPFS_MAGIC) {
        print_message("not here: /dev/shm is not in memory\n");
        skip();
    }
    struct cgroups *cs = groups_open(memory, 160LL * MIB);
    struct cgroup *first = group_open(cs, 0, 100), *second = group_open_as(cs, "job-2-attempt-1-rank-0", 0, 100);
    assert_int_equal(wait_for(start_in(first, leave_shared_memory)), 0);
    log_catch();
    cgroup_close(first);
    assert_string_equal(log_caught(), ""); /* a rank may use it */
    log_catch();
    cgroup_close(second);
    const char *text = log_caught();
    unlink("/dev/shm/trainyard-test-cgroups");
    assert_non_null(strstr(text, "shared_memory_left"));
    cgroups_close(cs);
}

static struct cgroup_place place_of_pids(void) {
    struct cgroup_place places[CGROUP_CONTROLLERS];
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", places);
    return places[CGROUP_PIDS];
}

static struct {
    struct reactor *loop;
    struct reactor_watch log;
    struct cgroup_place before[CGROUP_CONTROLLERS];
    int64_t begin_ms, logged_ms;
} stays;

static void move_out(void *ctx, uint32_t events) {
    (void)ctx;
    (void)events;
    struct err why = { "" };
    stays.logged_ms = clock_mono_ms();
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (*stays.before[c].own && cgroup_folder_write(stays.before[c].own, "cgroup.procs", "0", &why) != ST_OK)
            fail_msg("%s", why.msg);
    reactor_quit(stays.loop);
}

/* This process does not kill itself: its group stays until it moves out. */
static void test_a_group_that_cannot_be_removed_is_tried_less_often_and_logged_once(void **state) {
    (void)state;
    struct err why = { "" };
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", stays.before);
    for (int c = 0; c < CGROUP_CONTROLLERS; c++)
        if (stays.before[c].unified) {
            print_message("cgroup v2 would kill this process with its group\n");
            skip();
        }
    assert_int_equal(reactor_open(&stays.loop, &why), ST_OK);
    cgroups_close(groups_open(processes, 0)); /* or skips */
    struct cgroups *cs = cgroups_open(&(struct cgroups_options){ .loop = stays.loop, .id = "test", .record = record });
    struct cgroup *g = group_open(cs, 0, 100);
    if (cgroup_add(g, getpid(), &why) != ST_OK)
        fail_msg("%s", why.msg);
    log_catch();
    stays.log = (struct reactor_watch){ .fd = log_pipe[0], .ready = move_out };
    assert_int_equal(reactor_watch_add(stays.loop, &stays.log, EPOLLIN, &why), ST_OK);
    stays.begin_ms = clock_mono_ms();
    cgroup_close(g);
    assert_int_equal(reactor_run(stays.loop, &why), ST_OK);
    reactor_watch_remove(stays.loop, &stays.log);
    cgroups_close(cs);
    reactor_close(stays.loop);
    const char *text = log_caught();
    assert_non_null(strstr(text, "control_group_stays"));
    assert_true(stays.logged_ms - stays.begin_ms >= 2000); /* eight tries, each 20 ms after the last, take 140 ms */
}

/* ---- the end of an agent ---- */

/* 77: no mounts of its own. */
static int close_on_a_read_only_file_system(void) {
    struct cgroup_place places[CGROUP_CONTROLLERS];
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", places);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 77;
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        places[c].own[places[c].n_mount] = '\0';
        if (*places[c].own && mount(NULL, places[c].own, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
            return 77;
    }
    struct cgroups *cs = cgroups_open(&(struct cgroups_options){ .id = "test", .record = record });
    const bool missing = missing_of(cs, processes);
    const int64_t begin_ms = clock_mono_ms();
    cgroups_close(cs);
    if (!missing)
        return 2;
    return clock_mono_ms() - begin_ms < CLOSE_MS ? 0 : 3;
}

static void test_the_end_does_not_wait_for_groups_that_could_not_be_made(void **state) {
    (void)state;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(close_on_a_read_only_file_system());
    const int status = wait_for(pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* This process does not kill itself: its groups stay. */
static void test_the_end_waits_once_and_not_for_each_hierarchy(void **state) {
    (void)state;
    struct cgroup_place before[CGROUP_CONTROLLERS];
    struct err why = { "" };
    cgroup_places_find("/proc/self/mountinfo", "/proc/self/cgroup", before);
    if (before[CGROUP_PIDS].unified || !*before[CGROUP_MEMORY].own) {
        print_message("only cgroup v1 has several hierarchies\n");
        skip();
    }
    struct cgroups *cs = groups_open(processes, 0);
    struct cgroup *g = group_open(cs, 64LL * MIB * 16, 100);
    if (cgroup_add(g, getpid(), &why) != ST_OK)
        fail_msg("%s", why.msg);
    const int64_t begin_ms = clock_mono_ms();
    cgroup_close(g);
    cgroups_close(cs);
    const int64_t took_ms = clock_mono_ms() - begin_ms;
    for (int c = 0; c < CGROUP_CONTROLLERS; c++) {
        char all[CGROUP_PATH_BYTES + 32];
        snprintf(all, sizeof all, "%.1000s/trainyard-test", before[c].own);
        if (*before[c].own &&
            (cgroup_folder_write(before[c].own, "cgroup.procs", "0", &why) != ST_OK || !cgroup_folder_remove(all)))
            fail_msg("%s: %s", all, why.msg);
    }
    assert_in_range(took_ms, CLOSE_MS, 2 * CLOSE_MS - 1);
}

/* A process that is an agent, and its exit status. With cgroup v2 each agent needs a group of its own. */
static int agent_in(const struct cgroup_place *above, const char *name, int (*fn)(void)) {
    char folder[CGROUP_PATH_BYTES + 32];
    struct err why = { "" };
    snprintf(folder, sizeof folder, "%s/%s", above->own, name);
    if (above->unified && cgroup_folder_make(folder, &why) != ST_OK)
        fail_msg("%s", why.msg);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(above->unified && cgroup_folder_write(folder, "cgroup.procs", "0", NULL) != ST_OK ? 9 : fn());
    const int status = wait_for(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char left[CGROUP_PATH_BYTES + 128];

static int leave_a_process(void) {
    struct cgroups *cs = cgroups_open(&(struct cgroups_options){ .id = "test", .record = record });
    struct cgroup *g = NULL;
    if (missing_of(cs, processes) ||
        cgroup_open(cs, "job-7-attempt-1-rank-0", &(struct cgroup_limits){ 0, 100 }, &g, NULL) != ST_OK)
        return 1;
    start_in(g, sleep_in_a_session_of_its_own);
    return 0; /* as if it was killed */
}

static int start_again(void) {
    struct cgroups *cs = cgroups_open(&(struct cgroups_options){ .id = "test", .record = record });
    const bool found = missing_of(cs, processes) || cgroup_folder_has(left, "cgroup.procs");
    cgroups_close(cs);
    return found;
}

static void test_the_next_agent_ends_what_a_killed_one_left(void **state) {
    (void)state;
    const struct cgroup_place above = place_of_pids();
    char first[CGROUP_PATH_BYTES + 32], second[CGROUP_PATH_BYTES + 32];
    struct cgroups *outer = cgroups_open(&(struct cgroups_options){ .id = "outer", .record = file("outer", "") });
    if (missing_of(outer, processes)) {
        cgroups_close(outer);
        skip();
    }
    snprintf(first, sizeof first, "%s/first", above.own);
    snprintf(second, sizeof second, "%s/second", above.own);
    snprintf(left, sizeof left, "%s%s/trainyard-test/job-7-attempt-1-rank-0", above.own, above.unified ? "/first" : "");
    assert_int_equal(agent_in(&above, "first", leave_a_process), 0);
    assert_true(cgroup_folder_has(left, "cgroup.procs"));
    assert_true(cgroup_folder_number(left, "cgroup.procs", NULL) > 0);
    assert_int_equal(agent_in(&above, "second", start_again), 0);
    assert_false(cgroup_folder_has(left, "cgroup.procs"));
    assert_true(!above.unified || (cgroup_folder_remove(first) && cgroup_folder_remove(second)));
    cgroups_close(outer);
}

static void test_a_record_that_names_another_group_empties_nothing(void **state) {
    (void)state;
    const struct cgroup_place above = place_of_pids();
    struct cgroups *cs = groups_open(processes, 0);
    struct cgroup *g = group_open(cs, 0, 100);
    const pid_t pid = start_in(g, sleep_in_a_session_of_its_own);
    char text[2 * CGROUP_PATH_BYTES + 64];
    snprintf(text, sizeof text, "%s/trainyard-test\n/\n%s\n", above.own, above.own);
    const char *other = file("other", text);
    cgroups_close(cgroups_open(&(struct cgroups_options){ .id = "second", .record = other }));
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    cgroup_close(g);
    wait_for(pid);
    cgroups_close(cs);
}

int main(void) {
    snprintf(base, sizeof base, "/tmp/trainyard-cgroups-XXXXXX");
    if (!mkdtemp(base))
        return 1;
    snprintf(record, sizeof record, "%s/record", base);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_host_with_v1_has_a_folder_for_each_controller),
        cmocka_unit_test(test_in_a_container_the_path_is_below_the_mounted_folder),
        cmocka_unit_test(test_v2_is_preferred_for_the_controllers_that_its_group_has),
        cmocka_unit_test(test_the_kernel_kills_a_rank_that_uses_more_than_its_memory),
        cmocka_unit_test(test_the_limit_of_all_ranks_is_told_from_that_of_a_rank),
        cmocka_unit_test(test_page_cache_that_reached_a_limit_is_not_the_cause_of_a_kill),
        cmocka_unit_test(test_a_rank_starts_no_more_processes_than_it_may),
        cmocka_unit_test(test_a_process_that_ignores_signals_ends_with_its_group),
        cmocka_unit_test(test_shared_memory_that_ended_ranks_left_is_logged),
        cmocka_unit_test(test_a_group_that_cannot_be_removed_is_tried_less_often_and_logged_once),
        cmocka_unit_test(test_the_end_does_not_wait_for_groups_that_could_not_be_made),
        cmocka_unit_test(test_the_end_waits_once_and_not_for_each_hierarchy),
        cmocka_unit_test(test_the_next_agent_ends_what_a_killed_one_left),
        cmocka_unit_test(test_a_record_that_names_another_group_empties_nothing),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err why = { "" };
    status_t st = dir_remove(base, &why);
    if (st != ST_OK)
        print_message("%s\n", why.msg);
    return failed || st != ST_OK;
}
