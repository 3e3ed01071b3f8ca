/* Replies from rows: the messages that clients get of jobs, hosts and checkpoints. */
#include "service/rpc/convert_checkpoint.h"
#include "service/rpc/convert_executor.h"
#include "service/rpc/convert_job.h"

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

static void a_job_is_converted_with_its_attempts_and_its_origin(void **state) {
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
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__Job *job = convert_job(a, &row);
    convert_attempts(a, row.id, attempts, 2, job);
    convert_origin(a, &origin, 9, job);
    const Trainyard__V1__Event *converted = convert_event(a, &event);
    assert_string_equal(job->spec->name, "a name");
    assert_int_equal(job->n_attempts, 2);
    assert_string_equal(job->attempts[1]->placements[1]->executor, "executors/b");
    assert_string_equal(job->forked_from, "jobs/4/checkpoints/5");
    assert_int_equal(converted->time->nanos, 1000);
}

static void hosts_and_checkpoints_are_converted(void **state) {
    struct store_device devices[] = {
        { .kind = "cuda", .model = "", .uuid = "", .pci_bus_id = "", .reason = "", .links = "NV18 NV18" },
        { .kind = "cpu", .model = "", .uuid = "", .pci_bus_id = "", .reason = "", .links = "" },
    };
    const struct store_executor executor = {
        .id = "a", .devices = devices, .n_devices = 2, .attach_time_us = 1, .drain_time_us = 1, .drain_reason = ""
    };
    const struct store_checkpoint checkpoint = { .job = 1, .id = 2, .create_time_us = 1, .commit_time_us = 2 };
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const Trainyard__V1__Executor *x = convert_executor(a, &executor);
    const Trainyard__V1__Checkpoint *k = convert_checkpoint(a, &checkpoint);
    assert_int_equal(x->n_devices, 2);
    assert_int_equal(x->devices[0]->n_links, 2);
    assert_string_equal(x->devices[0]->links[1], "NV18");
    assert_string_equal(k->name, "jobs/1/checkpoints/2");
}

static void bytes_that_are_no_spec_give_none(void **state) {
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    assert_null(arena_spec(a, "\377\377\377", 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_converted_with_its_attempts_and_its_origin),
        cmocka_unit_test(hosts_and_checkpoints_are_converted),
        cmocka_unit_test(bytes_that_are_no_spec_give_none),
    };
    return cmocka_run_group_tests(tests, pack_a_spec, NULL);
}
