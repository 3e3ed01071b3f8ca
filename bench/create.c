/* Durable CreateJob calls a second: bench_create ADDRESS TEXT CALLERS SECONDS. Each caller is a thread with a call at a
 * time; the jobs want more slots than there are, so that they stay QUEUED. Prints calls/s and the p50 and p99 in ms. */
#include "api/rpc/client.h"
#include "base/clock.h"
#include "bench/client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES_MOST = 200000 };

struct caller {
    struct rpc_channel *channel;
    const Trainyard__V1__JobSpec *spec;
    int64_t end_ms;
    double *ms;
    int n;
};

static void *call(void *arg) {
    struct caller *c = arg;
    struct err e;
    while (clock_mono_ms() < c->end_ms && c->n < SAMPLES_MOST) {
        char id[37];
        bench_request_id(id);
        Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
        create.spec = (Trainyard__V1__JobSpec *)c->spec;
        create.request_id = id;
        ProtobufCMessage *reply;
        int64_t t0 = clock_mono_ns();
        if (rpc_call_unary(c->channel, &trainyard__v1__job_service__descriptor, "CreateJob", &create.base, 0, &reply,
                           &e) != ST_OK)
            bench_fail("CreateJob", e.msg);
        c->ms[c->n++] = (double)(clock_mono_ns() - t0) / 1e6;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return NULL;
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
    int callers = atoi(argv[3]), seconds = atoi(argv[4]);
    struct err e;
    struct rpc_channel *channel;
    if (rpc_channel_open(&(struct rpc_channel_config){ .address = argv[1] }, &channel, &e) != ST_OK)
        bench_fail(argv[1], e.msg);
    const Trainyard__V1__JobSpec *spec = bench_spec(argv[2], 8, 1);
    struct caller *c = calloc((size_t)callers, sizeof *c);
    pthread_t *threads = calloc((size_t)callers, sizeof *threads);
    int64_t t0 = clock_mono_ms();
    for (int i = 0; i < callers; i++) {
        c[i] = (struct caller){ channel, spec, t0 + seconds * 1000, malloc(SAMPLES_MOST * sizeof(double)), 0 };
        pthread_create(&threads[i], NULL, call, &c[i]);
    }
    double *all = malloc((size_t)callers * SAMPLES_MOST * sizeof *all);
    int n = 0;
    for (int i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
        for (int k = 0; k < c[i].n; k++)
            all[n++] = c[i].ms[k];
        free(c[i].ms);
    }
    double took_s = (double)(clock_mono_ms() - t0) / 1000;
    qsort(all, (size_t)n, sizeof *all, ascending);
    if (n > 0)
        printf("%.0f %.3f %.3f\n", n / took_s, all[n / 2], all[n * 99 / 100]);
    free(all);
    free(threads);
    free(c);
    rpc_channel_close(channel);
    return n > 0 ? 0 : 1;
}
