/* Archives of code: chunks in any order and twice, the limit for all of them, the jobs that keep them, and their
 * garbage collection, also with many archives. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "base/limits.h"
#include "service/store/code.h"
#include "service/store/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = LIMIT_CODE_CHUNK_BYTES };

static char chunk_data[MIB];

static const uint8_t *digest_of(uint8_t mark) {
    static uint8_t digests[256][STORE_CODE_DIGEST];
    memset(digests[mark], mark, STORE_CODE_DIGEST);
    return digests[mark];
}

static struct store_code_put put_of(uint8_t mark, int64_t bytes, int chunk) {
    const int64_t rest = bytes - (int64_t)chunk * MIB;
    return (struct store_code_put){ .archive = digest_of(mark),
                                    .bytes = bytes,
                                    .total_bytes = 100LL * MIB,
                                    .chunk = chunk,
                                    .data = chunk_data,
                                    .n = rest < MIB ? (size_t)rest : MIB };
}

static struct store_code put(struct fixture *f, uint8_t mark, int64_t bytes, int chunk) {
    const struct store_code_put p = put_of(mark, bytes, chunk);
    struct store_code found;
    OK(store_code_put(f->store, f->epoch, &p, &found, &e));
    return found;
}

static int64_t total(struct fixture *f) {
    int64_t bytes;
    OK(store_code_total(f->store, &bytes, &e));
    return bytes;
}

static status_t create_job(struct fixture *f, uint8_t mark, int64_t *ret, struct err *e) {
    bool existed;
    struct store_job_new job = { .request_id = fixture_request(f),
                                 .name = "test",
                                 .queue = "default",
                                 .world_size = 1,
                                 .accelerator = "cpu",
                                 .keep_last = 2,
                                 .spec = "spec",
                                 .spec_bytes = 4,
                                 .code = digest_of(mark) };
    return store_job_create(f->store, f->epoch, &job, ret, &existed, NULL, e);
}

static void chunks_may_come_in_any_order_and_twice(void **state) {
    struct fixture *f = *state;
    struct store_code found;
    OK(store_code_get(f->store, f->epoch, digest_of(1), &found, &e));
    assert_int_equal(found.bytes, 0);
    found = put(f, 1, 2 * MIB + 5, 2);
    assert_int_equal(found.chunks, 3);
    assert_int_equal(found.next_chunk, 0);
    assert_int_equal(put(f, 1, 2 * MIB + 5, 0).next_chunk, 1);
    assert_int_equal(put(f, 1, 2 * MIB + 5, 0).next_chunk, 1);
    FAILS(store_code_complete(f->store, f->epoch, digest_of(1), &e), ST_ABORTED, "missing");
    assert_int_equal(put(f, 1, 2 * MIB + 5, 1).next_chunk, 3);
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    OK(store_code_get(f->store, f->epoch, digest_of(1), &found, &e));
    assert_true(found.complete);
    assert_true(put(f, 1, 2 * MIB + 5, 1).complete);
    assert_int_equal(total(f), 2 * MIB + 5);
}

static void a_stored_chunk_is_never_replaced(void **state) {
    struct fixture *f = *state;
    struct store_code_chunk chunk;
    struct store_code_put other = put_of(1, 10, 0);
    put(f, 1, 10, 0);
    struct store_code found;
    other.data = "0123456789";
    OK(store_code_put(f->store, f->epoch, &other, &found, &e));
    OK(store_code_chunk(f->store, f->m, digest_of(1), 0, &chunk, &e));
    assert_int_equal(chunk.n, 10);
    assert_memory_equal(chunk.data, chunk_data, 10);
    assert_false(chunk.complete);
    FAILS(store_code_chunk(f->store, f->m, digest_of(1), 1, &chunk, &e), ST_NOT_FOUND, "chunk 1");
}

static void a_chunk_that_cannot_belong_to_the_archive_is_refused(void **state) {
    struct fixture *f = *state;
    struct store_code found;
    struct store_code_put p = put_of(1, 10, 0);
    p.n = 9;
    FAILS(store_code_put(f->store, f->epoch, &p, &found, &e), ST_INVALID_ARGUMENT, "has 10 bytes, not 9");
    p = put_of(1, 10, 0);
    p.chunk = 1;
    FAILS(store_code_put(f->store, f->epoch, &p, &found, &e), ST_INVALID_ARGUMENT, "chunk: 1");
    p = put_of(1, 10, 0);
    p.bytes = LIMIT_CODE_BYTES + 1;
    FAILS(store_code_put(f->store, f->epoch, &p, &found, &e), ST_INVALID_ARGUMENT, "bytes:");
    put(f, 1, 10, 0);
    p = put_of(1, 11, 0);
    FAILS(store_code_put(f->store, f->epoch, &p, &found, &e), ST_INVALID_ARGUMENT, "begun with 10 bytes");
    assert_int_equal(total(f), 10);
}

static void all_archives_together_have_a_limit(void **state) {
    struct fixture *f = *state;
    struct store_code found;
    struct store_code_put p = put_of(2, 90LL * MIB, 0);
    put(f, 1, 11LL * MIB, 0);
    FAILS(store_code_put(f->store, f->epoch, &p, &found, &e), ST_RESOURCE_EXHAUSTED, "100 MiB, their maximum");
    assert_int_equal(total(f), 11LL * MIB);
    OK(store_code_get(f->store, f->epoch, digest_of(2), &found, &e));
    assert_int_equal(found.bytes, 0);
    p = put_of(2, 89LL * MIB, 0);
    OK(store_code_put(f->store, f->epoch, &p, &found, &e));
}

struct uploader {
    struct fixture *f;
    int from;
};

static void *upload(void *arg) {
    const struct uploader *u = arg;
    for (int i = 0; i < 16; i++)
        put(u->f, 1, 16LL * MIB, (i + u->from) % 16);
    return NULL;
}

static void uploads_at_the_same_time_make_one_archive(void **state) {
    struct fixture *f = *state;
    struct uploader all[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        all[i] = (struct uploader){ f, 4 * i };
        assert_int_equal(pthread_create(&threads[i], NULL, upload, &all[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    assert_int_equal(total(f), 16LL * MIB);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM code_chunk"), 16);
}

static void only_a_complete_archive_can_be_used_by_a_job(void **state) {
    struct fixture *f = *state;
    int64_t job;
    FAILS(create_job(f, 1, &job, &e), ST_FAILED_PRECONDITION, "does not have this archive");
    put(f, 1, 10, 0);
    FAILS(create_job(f, 1, &job, &e), ST_FAILED_PRECONDITION, "does not have this archive");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 0);
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    OK(create_job(f, 1, &job, &e));
    OK(store_code_drop(f->store, f->epoch, digest_of(1), &e));
    FAILS(create_job(f, 1, &job, &e), ST_FAILED_PRECONDITION, "does not have this archive");
    assert_int_equal(put(f, 1, 10, 0).next_chunk, 1); /* it is uploaded again */
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    OK(create_job(f, 1, &job, &e));
}

/* Of two comparisons at the same time, the later one may have read chunks that are gone. */
static void a_late_comparison_does_not_drop_an_archive_that_is_complete(void **state) {
    struct fixture *f = *state;
    struct store_code found;
    put(f, 1, 10, 0);
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    FAILS(store_code_restart(f->store, f->epoch, digest_of(1), &e), ST_ABORTED, "completed or deleted meanwhile");
    FAILS(store_code_restart(f->store, f->epoch, digest_of(2), &e), ST_ABORTED, "completed or deleted meanwhile");
    OK(store_code_get(f->store, f->epoch, digest_of(1), &found, &e));
    assert_true(found.complete);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM code_chunk"), 1);
    put(f, 3, 10, 0);
    OK(store_code_restart(f->store, f->epoch, digest_of(3), &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM code_chunk"), 1);
}

static void age(struct fixture *f, const char *interval) {
    char sql[120];
    snprintf(sql, sizeof sql, "UPDATE code_archive SET use_time = use_time - interval '%s'", interval);
    pg_run(f->conninfo, sql);
}

static bool collect(struct fixture *f) {
    bool deleted;
    OK(store_code_collect(f->store, f->epoch, &deleted, &e));
    return deleted;
}

static void an_archive_stays_while_a_job_refers_to_it_and_a_day_longer(void **state) {
    struct fixture *f = *state;
    int64_t job;
    struct store_code found;
    put(f, 1, 10, 0);
    OK(store_code_complete(f->store, f->epoch, digest_of(1), &e));
    OK(create_job(f, 1, &job, &e));
    age(f, "3 days");
    assert_false(collect(f));
    pg_run(f->conninfo, "DELETE FROM job");
    OK(store_code_get(f->store, f->epoch, digest_of(1), &found, &e)); /* a client asks: it is in use */
    age(f, "23 hours");
    assert_false(collect(f));
    age(f, "1 hour");
    assert_true(collect(f));
    assert_int_equal(total(f), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM code_chunk"), 0);
}

static void an_upload_that_does_not_continue_is_dropped_after_an_hour(void **state) {
    struct fixture *f = *state;
    put(f, 1, 2 * MIB, 0);
    age(f, "59 minutes");
    assert_false(collect(f));
    age(f, "1 minute");
    assert_true(collect(f));
    assert_false(collect(f));
    assert_int_equal(total(f), 0);
}

/* A million rows would be found by a scan in seconds; the index finds the oldest one. */
static void many_archives_in_use_do_not_slow_down_garbage_collection(void **state) {
    struct fixture *f = *state;
    pg_run(f->conninfo, "INSERT INTO code_archive (sha256, bytes, complete_time, use_time) "
                        "SELECT sha256(n::text::bytea), 1, now(), now() FROM generate_series(1, 200000) n;"
                        "UPDATE code_total SET bytes = 200000; ANALYZE code_archive");
    put(f, 1, 10, 0);
    age(f, "2 hours");
    const int64_t begun = clock_mono_ms();
    assert_true(collect(f));
    assert_false(collect(f));
    put(f, 2, 10, 0);
    print_message("three calls among 200,000 archives took %lld ms\n", (long long)(clock_mono_ms() - begun));
    assert_int_equal(total(f), 200010);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(chunks_may_come_in_any_order_and_twice),
        TEST(a_stored_chunk_is_never_replaced),
        TEST(a_chunk_that_cannot_belong_to_the_archive_is_refused),
        TEST(all_archives_together_have_a_limit),
        TEST(uploads_at_the_same_time_make_one_archive),
        TEST(only_a_complete_archive_can_be_used_by_a_job),
        TEST(a_late_comparison_does_not_drop_an_archive_that_is_complete),
        TEST(an_archive_stays_while_a_job_refers_to_it_and_a_day_longer),
        TEST(an_upload_that_does_not_continue_is_dropped_after_an_hour),
        TEST(many_archives_in_use_do_not_slow_down_garbage_collection),
    };
    return cmocka_run_group_tests_name("store code", tests, fixture_group_setup, fixture_group_teardown);
}
