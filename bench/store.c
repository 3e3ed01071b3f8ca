/* The store's figures against a PostgreSQL that bench/store.py has started:
 *
 *     bench_store CONNINFO ingest RANKS ROWS SECONDS    metric points/s from decoded batches to committed rows, by one
 *                                                       writer in writes of at most 256 batches; from 1 s on, and at
 *                                                       least two rows of each rank
 *     bench_store CONNINFO create CALLERS SECONDS       durable store_job_create
 *     bench_store CONNINFO downsample POINTS MOST RUNS  one series of POINTS read back as MOST entries
 *
 * Each prints one line of JSON. The database must have the newest schema and belong to this program alone. */
#include "base/clock.h"
#include "service/store/attempt.h"
#include "service/store/leader.h"
#include "service/store/metric.h"
#include "service/store/migrate.h"
#include "service/store/report.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        struct err e;                                                                                                  \
        status_t st_ = (call);                                                                                         \
        if (st_ != ST_OK) {                                                                                            \
            fprintf(stderr, "bench_store: %s: %s\n", status_name(st_), e.msg);                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static struct store *store;
static struct store_leader *leader;

/* What every step reports: interfaces' list of a job's metrics. */
static char *const NAMES[] = { "loss",         "learning_rate", "grad_norm",  "tokens_per_second",
                               "step_seconds", "mfu",           "loss_scale", "memory_bytes" };
enum { NAMES_N = 8 };

static int64_t new_job(int world_size, const char *request) {
    static char spec[600];
    struct store_job_new job = { .request_id = request,
                                 .name = "bench",
                                 .queue = "default",
                                 .world_size = world_size,
                                 .accelerator = "cpu",
                                 .max_restarts = 3,
                                 .steps = 1000,
                                 .keep_last = 3,
                                 .spec = spec,
                                 .spec_bytes = sizeof spec };
    int64_t id;
    bool existed;
    MUST(store_job_create(store, store_leader_epoch(leader), &job, &id, &existed, NULL, &e));
    return id;
}

static int64_t start_job(int world_size, const char *request) {
    int64_t job = new_job(world_size, request), epoch = store_leader_epoch(leader);
    const char **executors = calloc((size_t)world_size, sizeof *executors);
    char attempt_request[64];
    snprintf(attempt_request, sizeof attempt_request, "%s-start", request);
    for (int i = 0; i < world_size; i++)
        executors[i] = "host";
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_attempt_start start;
    MUST(store_attempt_create(store, m, epoch,
                              &(struct store_attempt_new){ .request_id = attempt_request,
                                                           .job = job,
                                                           .attempt = 1,
                                                           .from = STORE_JOB_QUEUED,
                                                           .world_size = world_size,
                                                           .executors = executors },
                              &start, &e));
    free(executors);
    return job;
}

/* ---- ingest ---- */

struct feed {
    struct store_record *records; /* [rows] */
    double *values;               /* [rows][NAMES_N] */
};

/* The next rows of a rank. The steps go on; the values are whatever they were. */
static void feed_next(struct feed *f, int rows, int64_t first_step) {
    for (int i = 0; i < rows; i++)
        f->records[i] = (struct store_record){
            .kind = STORE_RECORD_METRICS,
            .time_us = 1,
            .metrics = { .step = first_step + i, .n = NAMES_N, .names = NAMES, .values = f->values + i * NAMES_N },
        };
}

/* As many batches as the controller puts into one transaction, and ranks as a job may have. */
enum { WRITE_BATCHES = 256, JOB_RANKS = 1024 };

static int64_t resident_mib(void) {
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib >> 10;
}

static void ingest(int ranks, int rows, double seconds) {
    const int n_jobs = (ranks + JOB_RANKS - 1) / JOB_RANKS;
    int64_t *jobs = calloc((size_t)n_jobs, sizeof *jobs);
    for (int i = 0; i < n_jobs; i++) {
        char request[40];
        snprintf(request, sizeof request, "bench-ingest-%d", i);
        jobs[i] = start_job(i + 1 < n_jobs ? JOB_RANKS : ranks - i * JOB_RANKS, request);
    }
    struct store_report *r;
    r = store_report_new(store, store_leader_epoch(leader));
    struct feed feed = { .records = calloc((size_t)rows, sizeof *feed.records),
                         .values = calloc((size_t)rows * NAMES_N, sizeof(double)) };
    struct store_batch *batches = calloc(WRITE_BATCHES, sizeof *batches);
    struct store_batch_result *results = calloc(WRITE_BATCHES, sizeof *results);
    for (int i = 0; i < rows * NAMES_N; i++)
        feed.values[i] = rand() / (double)RAND_MAX;
    int64_t points = 0, writes = 0, first = 1, start = clock_mono_ns(), worst = 0, rounds = 0;
    for (; clock_mono_ns() - start < (int64_t)(seconds * 1e9) || rounds < 2; rounds++) {
        feed_next(&feed, rows, first);
        for (int at = 0; at < ranks; at += WRITE_BATCHES) {
            const int n = ranks - at < WRITE_BATCHES ? ranks - at : WRITE_BATCHES;
            for (int k = 0; k < n; k++)
                batches[k] = (struct store_batch){
                    jobs[(at + k) / JOB_RANKS], 1, (at + k) % JOB_RANKS, first, feed.records, (size_t)rows, 0, "host"
                };
            int64_t before = clock_mono_ns();
            MUST(store_report_write(r, batches, (size_t)n, results, &e));
            int64_t took = clock_mono_ns() - before;
            worst = took > worst ? took : worst;
            points += (int64_t)n * rows * NAMES_N;
            writes++;
        }
        first += rows;
    }
    double took = (double)(clock_mono_ns() - start) / 1e9;
    printf(
        "{\"what\": \"ingest\", \"ranks\": %d, \"rows\": %d, \"points_per_second\": %.0f, \"writes_per_second\": %.1f, "
        "\"worst_ms\": %.1f, \"points\": %lld, \"rows_of_a_rank_per_second\": %.2f, \"resident_mib\": %lld}\n",
        ranks, rows, (double)points / took, (double)writes / took, (double)worst / 1e6, (long long)points,
        (double)(rounds * rows) / took, (long long)resident_mib());
    store_report_free(r);
}

/* ---- create ---- */

enum { SAMPLES = 1 << 18 };

struct caller {
    pthread_t thread;
    int number, n;
    int64_t until_ns;
    float *ms; /* [SAMPLES] */
};

static void *create_jobs(void *ctx) {
    struct caller *c = ctx;
    while (c->n < SAMPLES && clock_mono_ns() < c->until_ns) {
        char request[64];
        snprintf(request, sizeof request, "bench-%d-%d", c->number, c->n);
        int64_t before = clock_mono_ns();
        new_job(2, request);
        c->ms[c->n++] = (float)(clock_mono_ns() - before) / 1e6f;
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void create(int callers, double seconds) {
    struct caller *c = calloc((size_t)callers, sizeof *c);
    int64_t start = clock_mono_ns();
    for (int i = 0; i < callers; i++) {
        c[i] = (struct caller){ .number = i,
                                .until_ns = start + (int64_t)(seconds * 1e9),
                                .ms = calloc(SAMPLES, sizeof(float)) };
        pthread_create(&c[i].thread, NULL, create_jobs, &c[i]);
    }
    size_t n = 0;
    for (int i = 0; i < callers; i++) {
        pthread_join(c[i].thread, NULL);
        n += (size_t)c[i].n;
    }
    double took = (double)(clock_mono_ns() - start) / 1e9;
    float *all = calloc(n, sizeof *all);
    size_t at = 0;
    for (int i = 0; i < callers; i++)
        for (int k = 0; k < c[i].n; k++)
            all[at++] = c[i].ms[k];
    qsort(all, n, sizeof *all, ascending);
    printf("{\"what\": \"create\", \"callers\": %d, \"per_second\": %.0f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n",
           callers, (double)n / took, (double)all[n / 2], (double)all[n * 99 / 100]);
}

/* ---- downsample ---- */

static void downsample(int points, int most, int runs) {
    int64_t job = start_job(1, "bench-downsample");
    struct store_report *r;
    r = store_report_new(store, store_leader_epoch(leader));
    struct store_record *records = calloc((size_t)points, sizeof *records);
    double value = 1;
    for (int i = 0; i < points; i++)
        records[i] = (struct store_record){ .kind = STORE_RECORD_METRICS,
                                            .metrics = { .step = i + 1, .n = 1, .names = NAMES, .values = &value } };
    struct store_batch batch = { job, 1, 0, 1, records, (size_t)points, 0, "host" };
    struct store_batch_result result;
    MUST(store_report_write(r, &batch, 1, &result, &e));
    store_report_free(r);
    float *ms = calloc((size_t)runs, sizeof *ms);
    size_t entries = 0;
    for (int i = 0; i < runs; i++) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_series *series;
        size_t n;
        int64_t before = clock_mono_ns();
        MUST(store_metric_query(store, m, &(struct store_metric_query){ .job = job, .max_points = most, .rank = -1 },
                                &series, &n, &e));
        ms[i] = (float)(clock_mono_ns() - before) / 1e6f;
        entries = series[0].n;
    }
    qsort(ms, (size_t)runs, sizeof *ms, ascending);
    printf("{\"what\": \"downsample\", \"points\": %d, \"entries\": %zu, \"p50_ms\": %.2f, \"worst_ms\": %.2f}\n",
           points, entries, (double)ms[runs / 2], (double)ms[runs - 1]);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: bench_store CONNINFO ingest RANKS ROWS SECONDS | create CALLERS SECONDS | "
              "downsample POINTS MOST RUNS\n",
              stderr);
        return 2;
    }
    MUST(store_migrate(argv[1], store_schema_version(), NULL, &e));
    MUST(store_open(&(struct store_options){ .conninfo = argv[1], .connections = 16 }, &store, &e));
    MUST(store_leader_try(store, "bench", 0, &leader, &e));
    if (strcmp(argv[2], "ingest") == 0 && argc == 6)
        ingest(atoi(argv[3]), atoi(argv[4]), atof(argv[5]));
    else if (strcmp(argv[2], "create") == 0 && argc == 5)
        create(atoi(argv[3]), atof(argv[4]));
    else if (strcmp(argv[2], "downsample") == 0 && argc == 6)
        downsample(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    else
        return 2;
    leader = store_leader_close(leader);
    store = store_close(store);
    return 0;
}
