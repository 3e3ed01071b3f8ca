/* The work of one rank in this process, without the other ranks of its gang: this test replaces the opening of Gloo. */
#include "api/codec/text.h"
#include "engine/collective/collective.h"
#include "executor/worker/rank.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int waits_ms;

status_t __wrap_collective_open_gloo(const struct collective_config *config, struct collective **ret, struct err *e);
status_t __wrap_collective_open_gloo(const struct collective_config *config, struct collective **ret, struct err *e) {
    (void)ret;
    waits_ms = config->timeout_ms;
    return err_set(e, ST_UNAVAILABLE, "nobody came");
}

static Trainyard__V1__JobSpec *spec_of_two(const char *file) {
    char text[512];
    ProtobufCMessage *spec = NULL;
    snprintf(
        text, sizeof text,
        "{name: t, model: {gpt: {layers: 1, heads: 1, width: 16, context: 8}}, data: {text: {files: ['file://%s']}},"
        " train: {steps: 1, global_batch: 2, lanes: 2, optimizer: {adamw: {}}}, parallel: {data: 2}, checkpoint: "
        "{every: 0}}",
        file);
    assert_int_equal(codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &spec, NULL), ST_OK);
    return (Trainyard__V1__JobSpec *)spec;
}

static void ranks_wait_for_each_other_twice_as_long_as_their_agent_does_and_a_minute_at_least(void **state) {
    (void)state;
    static const int cases[][2] = { { 0, 60000 }, { 30000, 60000 }, { 45000, 90000 } };
    char file[] = "/tmp/ty-rank-XXXXXX";
    const int text = mkstemp(file);
    assert_int_equal(write(text, "some text that is long enough", 29), 29);
    close(text);
    int commands[2];
    struct frame_reader reader;
    struct control *control;
    struct emitter *emitter;
    assert_int_equal(pipe(commands), 0);
    frame_reader_init(&reader, 1 << 16);
    assert_int_equal(control_open(commands[0], &reader, &control, NULL), ST_OK);
    assert_int_equal(emitter_open(open("/dev/null", O_WRONLY), EMIT_QUEUE_BYTES, &emitter, NULL), ST_OK);
    Trainyard__V1__WorkerStart start = TRAINYARD__V1__WORKER_START__INIT;
    Trainyard__V1__AttemptStart attempt = TRAINYARD__V1__ATTEMPT_START__INIT;
    start.attempt = &attempt;
    start.rank = 1;
    attempt.world_size = 2;
    attempt.spec = spec_of_two(file);
    char root[] = "/", *roots[] = { root };
    start.data_roots = roots;
    start.n_data_roots = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank_end end;
        start.hang_ms = cases[i][0];
        rank_train(&start, control, emitter, &end);
        assert_string_equal(end.why.msg, "nobody came");
        assert_int_equal(waits_ms, cases[i][1]);
    }
    trainyard__v1__job_spec__free_unpacked(attempt.spec, NULL);
    emitter_close(emitter, 1000);
    unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_wait_for_each_other_twice_as_long_as_their_agent_does_and_a_minute_at_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
