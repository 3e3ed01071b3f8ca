/* A checkpoint contains the choices that a device's kernels made in a run. A run that resumes from it uses the same
 * choices, and so computes the same bits, even if the device would choose differently now. */
#include "engine/checkpoint/reader.h"
#include "tests/engine/fake_device.h"
#include "tests/engine/trainee.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Twelve steps on the device, the fourth of a run with a checkpoint that is never skipped. */
static struct trainee *trainee_of_device(void) {
    struct trainee *t = trainee_new();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    t->config.device = FAKE_DEVICE_DEVICE;
    t->config.train.steps = 12;
    t->config.checkpoint.every = 4;
    return t;
}

static struct trainee_result run(struct trainee *t, int algorithm, const char *name) {
    fake_device_choose(algorithm);
    trainee_fresh_directory(t, name);
    if (trainee_run(t) != 0)
        fail_msg("%s: the rank died", name);
    return t->results[0];
}

static void resume(struct trainee *t, const char *of, int step) {
    char *end = strrchr(t->directory, '/');
    snprintf(t->resume, sizeof t->resume, "%.*s/%s/step-%d", (int)(end - t->directory), t->directory, of, step);
}

static char *records_of(const char *directory) {
    char *text = NULL;
    struct err e;
    if (checkpoint_tuning_caches(NULL, directory, 0, &text, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return text;
}

static void a_resumed_run_takes_the_choices_again_that_its_checkpoint_keeps(void **state) {
    (void)state;
    struct trainee *t = trainee_of_device();
    const struct trainee_result whole = run(t, 3, "whole"), other = run(t, 5, "other");
    assert_int_equal(whole.status, ST_OK);
    assert_string_equal(fake_device_tuning_cache(), "");
    assert_string_not_equal(whole.weights_sha256, other.weights_sha256);
    resume(t, "whole", 4);
    const struct trainee_result resumed = run(t, 5, "resumed");
    assert_int_equal(resumed.from_step, 4);
    CLEANUP(freep) char *kept = records_of(t->resume);
    assert_string_equal(kept, "products by algorithm 3\n");
    assert_string_equal(fake_device_tuning_cache(), kept);
    assert_string_equal(resumed.weights_sha256, whole.weights_sha256);
    assert_int_equal(resumed.notices, 0);
    resume(t, "resumed", 8); /* this run keeps the choices too */
    assert_string_equal(run(t, 0, "again").weights_sha256, whole.weights_sha256);
    trainee_free(t);
}

static void a_checkpoint_of_a_device_that_chooses_nothing_has_nothing_to_take_again(void **state) {
    (void)state;
    struct trainee *t = trainee_of_device();
    t->config.device = "cpu";
    const struct trainee_result whole = run(t, 0, "whole");
    resume(t, "whole", 4);
    CLEANUP(freep) char *kept = records_of(t->resume);
    assert_string_equal(kept, "");
    t->config.device = FAKE_DEVICE_DEVICE;
    assert_string_equal(run(t, 0, "resumed").weights_sha256, whole.weights_sha256);
    assert_string_equal(fake_device_tuning_cache(), "");
    trainee_free(t);
}

static void a_damaged_record_is_the_checkpoints_fault_in_one_sentence(void **state) {
    (void)state;
    struct trainee *t = trainee_of_device();
    char path[600], *found = NULL, want[700];
    struct bytes table;
    struct err e;
    run(t, FAKE_DEVICE_NONSENSE, "nonsense");
    resume(t, "nonsense", 4);
    assert_int_equal(run(t, 0, "resumed").outcome, ENGINE_CHECKPOINT_BAD);
    snprintf(want, sizeof want, "the checkpoint '%s': the run's record: line 1 tells of no algorithm", t->resume);
    assert_string_equal(t->results[0].message, want);

    bytes_init(&table, 1 << 20);
    t->resume[0] = 0;
    run(t, 3, "flipped");
    resume(t, "flipped", 4);
    snprintf(path, sizeof path, "%s/rank-0.json", t->resume);
    assert_int_equal(file_read(path, &table, &e), ST_OK);
    found = strstr(table.data, "algorithm 3");
    assert_non_null(found);
    found[10] = '5';
    assert_int_equal(file_write_atomic(path, table.data, table.len, 0644, &e), ST_OK);
    bytes_done(&table);
    assert_int_equal(run(t, 0, "resumed").outcome, ENGINE_CHECKPOINT_BAD);
    snprintf(want, sizeof want, "'%s': ", path);
    assert_memory_equal(t->results[0].message, want, strlen(want));
    assert_null(strchr(t->results[0].message, '\n'));

    assert_int_equal(unlink(path), 0);
    assert_int_equal(run(t, 0, "resumed").outcome, ENGINE_CHECKPOINT_UNREADABLE);
    resume(t, "nowhere", 4);
    assert_int_equal(run(t, 0, "resumed").outcome, ENGINE_CHECKPOINT_UNREADABLE);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_takes_the_choices_again_that_its_checkpoint_keeps),
        cmocka_unit_test(a_checkpoint_of_a_device_that_chooses_nothing_has_nothing_to_take_again),
        cmocka_unit_test(a_damaged_record_is_the_checkpoints_fault_in_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
