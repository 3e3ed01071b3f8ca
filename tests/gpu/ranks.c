/* gpu_ranks N sums | kill: N processes on one GPU, each a host of its own to NCCL, so that it accepts them. The
 * environment keeps their traffic on the loopback (tests/gpu/run sets it). Exit: 0 as it should be, 77 no device. */
#include "tests/engine/device_ranks.h"

#include <signal.h>

enum { TIMEOUT_MS = 60000, KNOWN_MS = 5000, SUM_MOST = 30000001, NO_DEVICE = 77 };

struct task {
    bool native;
    int (*body)(struct gang *g, int rank, struct collective *c, const struct kernels *k);
};

static int all_exact(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    int line = device_sums(g, rank, c, k, SUM_MOST);
    if (!line)
        line = device_union(g, rank, c, k);
    return line ? line : device_transfers(g, rank, c, k);
}

static int on_device(struct gang *g, int rank, struct collective *c) {
    const struct task *task = g->arg;
    char host[32];
    struct err e = { "" };
    CLEANUP(kernels_closep) struct kernels *k = NULL;
    snprintf(host, sizeof host, "rank-%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    DEVICE_MUST(collective_device_environment(true, &e) == ST_OK);
    if (kernels_open(&(struct kernels_config){ .device = "cuda", .threads = 1 }, &k, &e) != ST_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, e.msg);
        return NO_DEVICE;
    }
    const struct collective_device device = { .kernels = k, .data = g->world_size, .native = task->native };
    DEVICE_MUST(collective_attach(c, &device, &e) == ST_OK);
    int line = task->body(g, rank, c, k);
    collective_detach(c);
    return line != 0;
}

static int all_end_well(int ranks, const struct task *task) {
    struct gang *g = gang_start(ranks, TIMEOUT_MS, on_device, (void *)task);
    int bad = 0, status = 0;
    for (int r = 0; r < ranks; r++) {
        status = gang_await(g, r);
        bad = status == NO_DEVICE ? NO_DEVICE : bad ? bad : status != 0;
    }
    gang_free(g);
    return bad;
}

/* False: it has ended before. */
static bool comes_to(struct gang *g, int rank, int64_t progress) {
    siginfo_t info = { .si_pid = 0 };
    while (atomic_load(&g->progress[rank]) < progress) {
        if (waitid(P_PID, (id_t)g->pids[rank], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return false;
        sched_yield();
    }
    return true;
}

static int kill_one(int ranks) {
    const struct task task = { .body = device_sum_until_failure };
    struct gang *g = gang_start(ranks, TIMEOUT_MS, on_device, (void *)&task);
    int64_t latest = 0;
    int bad = !comes_to(g, 1, 20);
    bool absent = false, named = false; /* by the first that knows: the others may name its echo */
    int64_t killed = clock_mono_ms();
    kill(g->pids[1], SIGKILL);
    for (int r = 0; r < ranks; r++) {
        int status = gang_await(g, r);
        if (status == NO_DEVICE)
            absent = true;
        if (r == 1)
            continue;
        bad = bad || status != 0 || g->status[r] != ST_UNAVAILABLE;
        named = named || strstr(g->error[r].msg, "rank 1 ");
        latest = g->failed_at_ms[r] - killed > latest ? g->failed_at_ms[r] - killed : latest;
        fprintf(stderr, "# rank %d: %s: %s\n", r, status_name(g->status[r]), g->error[r].msg);
    }
    gang_free(g);
    if (absent)
        return NO_DEVICE;
    bad = bad || !named || latest > KNOWN_MS;
    if (!bad)
        printf("known to all after %lld ms\n", (long long)latest);
    return bad;
}

int main(int argc, char **argv) {
    static const struct task exact = { .body = all_exact }, native = { .native = true, .body = device_native_sum };
    int ranks = argc == 3 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > GANG_RANKS)
        return fprintf(stderr, "usage: gpu_ranks N sums | kill, N from 2 to %d\n", GANG_RANKS), 2;
    if (strcmp(argv[2], "kill") == 0)
        return kill_one(ranks);
    int64_t begun = clock_mono_ms();
    int bad = all_end_well(ranks, &exact);
    if (!bad)
        bad = all_end_well(ranks, &native);
    if (!bad)
        printf("%d ranks: sums to the bit, unions, transfers, NCCL's own sum; %.1f s\n", ranks,
               (double)(clock_mono_ms() - begun) / 1000);
    return bad;
}
