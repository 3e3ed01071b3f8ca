/* A gang for tests: one process per rank over Gloo, with a rendezvous over shared memory, or one thread per rank over
 * the virtual collective. The gang collects the result of each rank. */
#ifndef TESTS_ENGINE_GANG_H
#define TESTS_ENGINE_GANG_H

#include "base/clock.h"
#include "engine/collective/collective.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GANG_RANKS = 8, GANG_BLOB = 4096 };

struct gang {
    int world_size, timeout_ms;
    bool sockets_only;
    void *arg;
    pthread_barrier_t met; /* a barrier of all ranks of the gang */
    char blobs[GANG_RANKS][GANG_BLOB];
    size_t sizes[GANG_RANKS];
    _Atomic int64_t progress[GANG_RANKS]; /* set by gang_advance; other ranks wait for it with gang_until */
    _Atomic uint32_t advances;            /* of all ranks; a futex, because a rank that holds a lock may be killed */
    /* The result of each rank. */
    int64_t failed_at_ms[GANG_RANKS];
    status_t status[GANG_RANKS];
    struct err error[GANG_RANKS];
    pid_t pids[GANG_RANKS]; /* 0 = threads */
    pthread_t threads[GANG_RANKS];
};

/* The body of a rank. Returns 0 if all its checks hold. */
typedef int gang_main(struct gang *gang, int rank, struct collective *c);

struct gang_seat {
    struct gang *gang;
    int rank;
    gang_main *body;
    struct collective *c;
};

static inline status_t gang_rendezvous(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct gang_seat *seat = ctx;
    struct gang *g = seat->gang;
    if (n > GANG_BLOB)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a blob of %zu bytes", n);
    memcpy(g->blobs[seat->rank], mine, n);
    g->sizes[seat->rank] = n;
    pthread_barrier_wait(&g->met);
    for (int r = 0; r < g->world_size; r++)
        TRY(bytes_append(&all[r], g->blobs[r], g->sizes[r], e));
    return ST_OK;
}

static inline int gang_child(struct gang *g, int rank, gang_main *body) {
    struct gang_seat seat = { .gang = g, .rank = rank };
    struct collective_config config = { .rank = rank,
                                        .world_size = g->world_size,
                                        .address = "127.0.0.1",
                                        .timeout_ms = g->timeout_ms,
                                        .rendezvous = gang_rendezvous,
                                        .rendezvous_ctx = &seat,
                                        .sockets_only = g->sockets_only };
    struct err e;
    CLEANUP(collective_closep) struct collective *c = NULL;
    status_t st = g->world_size == 1 ? collective_open_alone(&c, &e) : collective_open_gloo(&config, &c, &e);
    if (st != ST_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, e.msg);
        return 90;
    }
    return body(g, rank, c);
}

static inline struct gang *gang_new(int world_size, int timeout_ms, void *arg) {
    struct gang *g = mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g == MAP_FAILED)
        abort();
    g->world_size = world_size;
    g->timeout_ms = timeout_ms;
    g->arg = arg;
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&g->met, &shared, (unsigned)world_size);
    return g;
}

static inline struct gang *gang_fork(struct gang *g, int world_size, gang_main *body) {
    fflush(NULL);
    for (int r = 0; r < world_size; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(gang_child(g, r, body));
        g->pids[r] = pid; /* shared memory: only the parent writes pids */
    }
    return g;
}

/* Maps a gang and forks its ranks. The caller must have no other threads. */
static inline struct gang *gang_start(int world_size, int timeout_ms, gang_main *body, void *arg) {
    return gang_fork(gang_new(world_size, timeout_ms, arg), world_size, body);
}

/* The same, but the ranks behave as if each ran on its own host. */
static inline struct gang *gang_start_apart(int world_size, int timeout_ms, gang_main *body, void *arg) {
    struct gang *g = gang_new(world_size, timeout_ms, arg);
    g->sockets_only = true;
    return gang_fork(g, world_size, body);
}

static inline void *gang_thread(void *arg) {
    struct gang_seat *seat = arg;
    int result = seat->body(seat->gang, seat->rank, seat->c);
    collective_close(seat->c);
    free(seat);
    return (void *)(intptr_t)result;
}

/* The same with threads of this process as ranks. */
static inline struct gang *gang_start_threads(int world_size, int timeout_ms, gang_main *body, void *arg) {
    struct gang *g = gang_new(world_size, timeout_ms, arg);
    struct collective *all[GANG_RANKS];
    struct err e;
    if (collective_open_threads(world_size, timeout_ms, all, &e) != ST_OK)
        abort();
    for (int r = 0; r < world_size; r++) {
        struct gang_seat *seat = malloc(sizeof *seat);
        if (!seat)
            abort();
        *seat = (struct gang_seat){ g, r, body, all[r] };
        if (pthread_create(&g->threads[r], NULL, gang_thread, seat) != 0)
            abort();
    }
    return g;
}

/* Waits for one rank. Returns its exit status, or 128 + the signal that ended it. */
static inline int gang_await(struct gang *g, int rank) {
    void *result;
    if (!g->pids[rank])
        return pthread_join(g->threads[rank], &result) == 0 ? (int)(intptr_t)result : -1;
    int status;
    waitpid(g->pids[rank], &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline void gang_free(struct gang *g) { munmap(g, sizeof *g); }

/* Waits for all ranks. Returns the number of ranks that did not end with 0. */
static inline int gang_end(struct gang *g) {
    int bad = 0;
    for (int r = 0; r < g->world_size; r++)
        bad += gang_await(g, r) != 0;
    gang_free(g);
    return bad;
}

/* Called in a rank: records its failure for the parent. */
static inline void gang_note(struct gang *g, int rank, status_t st, const struct err *e) {
    g->failed_at_ms[rank] = clock_mono_ms();
    g->status[rank] = st;
    g->error[rank] = *e;
}

/* Records a rank's progress. Any rank or the parent may call it. */
static inline void gang_reach(struct gang *g, int rank, int64_t progress) {
    atomic_store(&g->progress[rank], progress);
    atomic_fetch_add(&g->advances, 1);
    syscall(SYS_futex, &g->advances, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
static inline void gang_advance(struct gang *g, int rank) { gang_reach(g, rank, atomic_load(&g->progress[rank]) + 1); }

/* Returns true once the rank has made this progress. Returns false if no rank made progress for the time `most`; NULL
 * waits without a limit. */
static inline bool gang_until_most(struct gang *g, int rank, int64_t progress, const struct timespec *most) {
    for (;;) {
        const uint32_t seen = atomic_load(&g->advances);
        if (atomic_load(&g->progress[rank]) >= progress)
            return true;
        if (syscall(SYS_futex, &g->advances, FUTEX_WAIT, seen, most, NULL, 0) != 0 && errno == ETIMEDOUT)
            return false;
    }
}
static inline void gang_until(struct gang *g, int rank, int64_t progress) { gang_until_most(g, rank, progress, NULL); }

#endif
