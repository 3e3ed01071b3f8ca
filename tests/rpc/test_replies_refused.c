/* Rows become messages on a machine whose memory runs out: whichever allocation is refused, what is made can be freed,
 * and the reply is told to have holes. */
#include "service/rpc/convert_checkpoint.h"
#include "service/rpc/convert_executor.h"
#include "service/rpc/convert_job.h"
#include "tests/refused_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint8_t spec[64];
static size_t spec_bytes;

static int pack_a_spec(void **state) {
    (void)state;
    Trainyard__V1__JobSpec message = TRAINYARD__V1__JOB_SPEC__INIT;
    message.name = (char *)"a name";
    spec_bytes = trainyard__v1__job_spec__get_packed_size(&message);
    assert_true(spec_bytes <= sizeof spec);
    trainyard__v1__job_spec__pack(&message, spec);
    return 0;
}

static status_t convert_a_job(void *ctx, struct err *e) {
    const struct store_job row = { .id = 7,
                                   .state = STORE_JOB_QUEUED,
                                   .name = "",
                                   .reason = "",
                                   .queue = "default",
                                   .weights_sha256 = "",
                                   .spec = spec,
                                   .spec_bytes = spec_bytes,
                                   .create_time_us = 1 };
    struct store_placement placements[] = { { .rank = 0, .executor = "a" }, { .rank = 1, .executor = "b" } };
    const struct store_attempt attempts[] = {
        { .number = 1, .from_checkpoint = 3, .reason = "", .create_time_us = 1 },
        { .number = 2, .reason = "", .placements = placements, .n_placements = 2, .end_time_us = 2 },
    };
    const struct store_origin origin = { .job = 4, .checkpoint = 5 };
    const struct store_event event = { .number = 1, .time_us = 1, .kind = "", .message = "" };
    (void)ctx;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__Job *job = convert_job(a, &row);
    if (job) {
        convert_attempts(a, row.id, attempts, 2, job);
        convert_origin(a, &origin, 9, job);
    }
    Trainyard__V1__Event *told = convert_event(a, &event);
    TRY(arena_status(a, e));
    assert_string_equal(job->spec->name, "a name");
    assert_int_equal(job->n_attempts, 2);
    assert_string_equal(job->attempts[1]->placements[1]->executor, "executors/b");
    assert_string_equal(job->forked_from, "jobs/4/checkpoints/5");
    assert_int_equal(told->time->nanos, 1000);
    return ST_OK;
}

static status_t convert_hosts_and_checkpoints(void *ctx, struct err *e) {
    struct store_device devices[] = {
        { .kind = "cuda", .model = "", .uuid = "", .pci_bus_id = "", .reason = "", .links = "NV18 NV18" },
        { .kind = "cpu", .model = "", .uuid = "", .pci_bus_id = "", .reason = "", .links = "" },
    };
    const struct store_executor executor = {
        .id = "a", .devices = devices, .n_devices = 2, .attach_time_us = 1, .drain_time_us = 1, .drain_reason = ""
    };
    const struct store_checkpoint checkpoint = { .job = 1, .id = 2, .create_time_us = 1, .commit_time_us = 2 };
    (void)ctx;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const Trainyard__V1__Executor *x = convert_executor(a, &executor);
    const Trainyard__V1__Checkpoint *k = convert_checkpoint(a, &checkpoint);
    TRY(arena_status(a, e));
    assert_int_equal(x->n_devices, 2);
    assert_int_equal(x->devices[0]->n_links, 2);
    assert_string_equal(x->devices[0]->links[1], "NV18");
    assert_string_equal(k->name, "jobs/1/checkpoints/2");
    return ST_OK;
}

static void a_message_with_holes_is_told_and_freed(void **state) {
    (void)state;
    assert_true(refuse_each_allocation("a job", convert_a_job, NULL) > 15);
    assert_true(refuse_each_allocation("hosts and checkpoints", convert_hosts_and_checkpoints, NULL) > 10);
}

static void bytes_that_are_no_spec_are_no_refused_memory(void **state) {
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    assert_null(arena_spec(a, "\377\377\377", 3));
    assert_int_equal(arena_status(a, NULL), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_with_holes_is_told_and_freed),
        cmocka_unit_test(bytes_that_are_no_spec_are_no_refused_memory),
    };
    return cmocka_run_group_tests(tests, pack_a_spec, NULL);
}
