/* Common code of the store's tests: a store on a new database with a leader, and functions that create rows. */
#ifndef TESTS_STORE_STORE_FIXTURE_H
#define TESTS_STORE_STORE_FIXTURE_H

#include "service/store/attempt.h"
#include "service/store/leader.h"
#include "service/store/report.h"
#include "tests/store/pg_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err e;                                                                                                  \
        status_t st_ = (call);                                                                                         \
        if (st_ != ST_OK)                                                                                              \
            fail_msg("%s: %s: %s", #call, status_name(st_), e.msg);                                                    \
    } while (0)
/* The call must fail with this status and a message that contains the text. */
#define FAILS(call, status, text)                                                                                      \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        status_t st_ = (call);                                                                                         \
        assert_string_equal(status_name(st_), status_name(status));                                                    \
        if (!strstr(e.msg, text))                                                                                      \
            fail_msg("'%s' does not contain '%s'", e.msg, text);                                                       \
    } while (0)

struct fixture {
    struct pg *pg;
    char conninfo[256];
    struct store *store;
    struct store_leader *leader;
    int64_t epoch;
    struct store_memory *m;
    int request; /* a counter for new request ids */
    char id[40];
};

int fixture_group_setup(void **state);
int fixture_group_teardown(void **state);
int fixture_setup(void **state); /* a new database, a store, and a leader */
int fixture_teardown(void **state);

const char *fixture_request(struct fixture *f); /* a new request id */
/* A QUEUED job of world_size ranks. */
int64_t fixture_job(struct fixture *f, int world_size);
/* Creates the job's next attempt on executors "host". The job becomes STARTING. */
int fixture_attempt(struct fixture *f, int64_t job, enum store_job_state from, int world_size);
void fixture_move(struct fixture *f, int64_t job, int attempt, enum store_job_state from, enum store_job_state to);
/* A QUEUED job made RUNNING with attempt 1. */
int64_t fixture_running(struct fixture *f, int world_size);
/* The running attempt fails. The next attempt starts and runs. */
int fixture_next_attempt(struct fixture *f, int64_t job, int attempt, int world_size);

/* Records, which borrow their names and texts. */
struct store_record record_metrics(int64_t step, size_t n, char *const *names, const double *values);
struct store_record record_shard(int64_t step, int rank, int world_size, bool final);
struct store_record record_log(const char *text);

/* Reports n records of a rank on executor "host", the first with the number `first`. */
struct store_batch_result fixture_report(struct store_report *r, int64_t job, int attempt, int rank, int64_t first,
                                         const struct store_record *records, size_t n);
/* Reports the only shard of a checkpoint of attempt 1, as record number `sequence`. */
void fixture_checkpoint(struct store_report *r, int64_t job, int64_t step, double validation_loss, int64_t sequence);

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

#endif
