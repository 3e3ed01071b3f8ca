/* Durable CreateJob calls a second: bench_create ADDRESS TEXT CALLERS SECONDS. Each caller has one call under way; as
 * in pgbench -j, a thread serves many callers. The jobs want more slots than there are, so that they stay QUEUED.
 * Prints calls/s and the p50 and p99 in ms. */
#include "api/rpc/client.h"
#include "base/clock.h"
#include "bench/client.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES_MOST = 1 << 20, RANKS = 8 };

static struct {
    struct rpc_channel *channel;
    Trainyard__V1__JobSpec *spec;
    int64_t end_ms;
    pthread_mutex_t lock;
    pthread_cond_t over;
    int callers; /* still calling */
    int n;
    double ms[SAMPLES_MOST];
} bench = { .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER };

struct caller {
    int64_t t0_ns;
};

static void call(struct caller *c);

static void on_done(struct rpc_call *rpc, status_t status, const char *why) {
    struct caller *c = rpc_user(rpc);
    if (status != ST_OK)
        bench_fail("CreateJob", why);
    double ms = (double)(clock_mono_ns() - c->t0_ns) / 1e6;
    bool more = clock_mono_ms() < bench.end_ms;
    pthread_mutex_lock(&bench.lock);
    if (bench.n < SAMPLES_MOST)
        bench.ms[bench.n++] = ms;
    if (!more && --bench.callers == 0)
        pthread_cond_signal(&bench.over);
    pthread_mutex_unlock(&bench.lock);
    if (more)
        call(c);
}

static void call(struct caller *c) {
    static const struct rpc_events events = { .done = on_done };
    char id[37];
    bench_request_id(id);
    Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    create.spec = bench.spec;
    create.request_id = id;
    create.wait_for_hosts = true;
    c->t0_ns = clock_mono_ns();
    struct err e;
    struct rpc_call *rpc;
    if (rpc_start(bench.channel, &trainyard__v1__job_service__descriptor, "CreateJob", RPC_UNARY, &events, c,
                  &create.base, 0, &rpc, &e) != ST_OK)
        bench_fail("CreateJob", e.msg);
    rpc_unref(rpc);
}

static atomic_bool attached;

static void on_welcome(struct rpc_call *rpc, const ProtobufCMessage *m) {
    (void)rpc, (void)m;
    atomic_store(&attached, true);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: bench_create ADDRESS TEXT CALLERS SECONDS\n");
        return 2;
    }
    struct err e;
    if (rpc_channel_open(&(struct rpc_channel_config){ .address = argv[1] }, &bench.channel, &e) != ST_OK)
        bench_fail(argv[1], e.msg);
    int callers = bench.callers = atoi(argv[3]);
    bench.spec = bench_spec(argv[2], RANKS, 1);
    struct caller *c = calloc((size_t)callers, sizeof *c);
    static const struct rpc_events executor_events = { .message = on_welcome };
    struct rpc_call *executor = bench_executor(bench.channel, 0, RANKS, &executor_events);
    while (!atomic_load(&attached))
        poll(NULL, 0, 1);
    int64_t t0 = clock_mono_ms();
    bench.end_ms = t0 + atoi(argv[4]) * 1000;
    for (int i = 0; i < callers; i++)
        call(&c[i]);
    pthread_mutex_lock(&bench.lock);
    while (bench.callers > 0)
        pthread_cond_wait(&bench.over, &bench.lock);
    pthread_mutex_unlock(&bench.lock);
    double took_s = (double)(clock_mono_ms() - t0) / 1000;
    qsort(bench.ms, (size_t)bench.n, sizeof *bench.ms, ascending);
    printf("%.0f %.3f %.3f\n", bench.n / took_s, bench.ms[bench.n / 2], bench.ms[bench.n * 99 / 100]);
    rpc_cancel(executor);
    rpc_unref(executor);
    bench.channel = rpc_channel_close(bench.channel);
    free(c);
    return 0;
}
