#include "tests/store/store_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fixture_group_setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->pg = pg_start();
    *state = f;
    return 0;
}

int fixture_group_teardown(void **state) {
    struct fixture *f = *state;
    pg_stop(f->pg);
    free(f);
    return 0;
}

int fixture_setup(void **state) {
    struct fixture *f = *state;
    snprintf(f->conninfo, sizeof f->conninfo, "%s", pg_database(f->pg, true));
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = 20000 }, &f->store, &e));
    OK(store_leader_try(f->store, "test", 0, &f->leader, &e));
    assert_non_null(f->leader);
    f->epoch = store_leader_epoch(f->leader);
    f->m = store_memory_new();
    return 0;
}

int fixture_teardown(void **state) {
    struct fixture *f = *state;
    f->m = store_memory_free(f->m);
    f->leader = store_leader_close(f->leader);
    f->store = store_close(f->store);
    return 0;
}

const char *fixture_request(struct fixture *f) {
    snprintf(f->id, sizeof f->id, "request-%d", ++f->request);
    return f->id;
}

int64_t fixture_job(struct fixture *f, int world_size) {
    struct store_job_new job = { .request_id = fixture_request(f),
                                 .name = "test",
                                 .queue = "default",
                                 .world_size = world_size,
                                 .accelerator = "cpu",
                                 .needs = 5,
                                 .max_restarts = 3,
                                 .steps = 100,
                                 .keep_last = 2,
                                 .keep_best = 1,
                                 .spec = "spec\0bytes",
                                 .spec_bytes = 10 };
    int64_t id;
    bool existed;
    OK(store_job_create(f->store, f->epoch, &job, &id, &existed, NULL, &e));
    assert_false(existed);
    return id;
}

int fixture_attempt(struct fixture *f, int64_t job, enum store_job_state from, int world_size) {
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    const char **executors = calloc((size_t)world_size, sizeof *executors);
    for (int i = 0; i < world_size; i++)
        executors[i] = "host";
    struct store_attempt_new attempt = { .request_id = fixture_request(f),
                                         .job = job,
                                         .attempt = row.attempt + 1,
                                         .from = from,
                                         .world_size = world_size,
                                         .executors = executors };
    struct store_attempt_start start;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    free(executors);
    return attempt.attempt;
}

void fixture_move(struct fixture *f, int64_t job, int attempt, enum store_job_state from, enum store_job_state to) {
    struct store_job_move move = {
        .request_id = fixture_request(f), .job = job, .attempt = attempt, .from = from, .to = to, .reason = ""
    };
    OK(store_job_move(f->store, f->epoch, &move, NULL, &e));
}

int64_t fixture_running(struct fixture *f, int world_size) {
    int64_t job = fixture_job(f, world_size);
    fixture_attempt(f, job, STORE_JOB_QUEUED, world_size);
    fixture_move(f, job, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    return job;
}

int fixture_next_attempt(struct fixture *f, int64_t job, int attempt, int world_size) {
    fixture_move(f, job, attempt, STORE_JOB_RUNNING, STORE_JOB_RESTARTING);
    OK(store_attempt_end(f->store, f->epoch, job, attempt, 0, "a rank died", &e));
    int next = fixture_attempt(f, job, STORE_JOB_RESTARTING, world_size);
    fixture_move(f, job, next, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    return next;
}

struct store_record record_metrics(int64_t step, size_t n, char *const *names, const double *values) {
    return (struct store_record){ .kind = STORE_RECORD_METRICS,
                                  .time_us = 1,
                                  .metrics = { .step = step, .n = n, .names = names, .values = values } };
}

struct store_record record_shard(int64_t step, int rank, int world_size, bool final) {
    return (struct store_record){
        .kind = STORE_RECORD_SHARD,
        .time_us = 1,
        .shard = { .step = step,
                   .rank = rank,
                   .world_size = world_size,
                   .directory = "/c/step",
                   .file = "rank.safetensors",
                   .bytes = 10,
                   .sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                   .weights_sha256 = rank == 0 ? "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
                                               : "",
                   .final = final },
    };
}

struct store_record record_log(const char *text) {
    return (struct store_record){ .kind = STORE_RECORD_LOG, .time_us = 5, .log = { .stream = "stdout", .text = text } };
}

struct store_batch_result fixture_report(struct store_report *r, int64_t job, int attempt, int rank, int64_t first,
                                         const struct store_record *records, size_t n) {
    struct store_batch batch = { job, attempt, rank, first, records, n, 0, "host" };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    return result;
}

void fixture_checkpoint(struct store_report *r, int64_t job, int64_t step, double validation_loss, int64_t sequence) {
    struct store_record shard = record_shard(step, 0, 1, false);
    shard.shard.has_validation_loss = true;
    shard.shard.validation_loss = validation_loss;
    assert_int_equal(fixture_report(r, job, 1, 0, sequence, &shard, 1).n_committed, 1);
}
