/* Jobs that an executor of an older release would run in a wrong way: it gets no order for them, and the job starts on
 * an executor that has the feature. */
#include "api/codec/text.h"
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START

static const char *const MIXTURE = "{mixture: {sources: {a: {weight: 1, tokens: {train: ['file:///nowhere/a']}}}}}";
static const char *const TOKENS = "{tokens: {train: ['file:///nowhere/a']}}";

static const char *const GPT = "{gpt: {layers: 1, heads: 1, width: 8, context: 8, vocabulary: 300}}";

static int64_t submit(struct service_fixture *y, const char *model, const char *data, const char *changed_data) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *spec = NULL, *reply = NULL;
    char text[512];
    snprintf(text, sizeof text,
             "{name: needy, model: %s, data: %s, train: {steps: 10, global_batch: 8, changed_data: %s}}", model, data,
             changed_data);
    OK(codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &spec, &e));
    request.spec = (Trainyard__V1__JobSpec *)spec;
    request.wait_for_hosts = request.skip_check = true;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    const int64_t job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    protobuf_c_message_free_unpacked(spec, NULL);
    return job;
}

static struct agent *agent_with(struct service_fixture *y, const char *id, char **features, size_t n) {
    struct agent *a = agent_new(y, id, 1, 1);
    agent_set_features(a, features, n);
    agent_attach_alive(a);
    return a;
}

static void assert_needed(struct service_fixture *y, const char *model, const char *data, const char *changed_data,
                          char *feature) {
    static char *older[] = { (char *)"code", (char *)"data", (char *)"images" };
    struct agent *old = agent_with(y, "old", older, 3);
    const int64_t job = submit(y, model, data, changed_data);
    struct agent *new = agent_with(y, "new", &feature, 1);
    assert_int_equal(agent_expect(new, START)->start->job, job);
    assert_true(agent_idle(old));
    agent_free(old);
    agent_free(new);
}

static void a_mixture_needs_an_executor_that_knows_it(void **state) {
    assert_needed(*state, GPT, MIXTURE, "refuse", (char *)"mixture");
}

static void changed_data_need_an_executor_that_knows_them(void **state) {
    assert_needed(*state, GPT, TOKENS, "restart", (char *)"changed_data");
}

static void mixup_of_idx_files_needs_an_executor_that_knows_it(void **state) {
    assert_needed(
        *state, "{mlp: {}}",
        "{idx: {train_images: 'file:///nowhere/i', train_labels: 'file:///nowhere/l', augment: {mixup: 0.2}}}",
        "refuse", (char *)"mixup");
}

static void mixup_of_folders_needs_an_executor_that_knows_it(void **state) {
    assert_needed(*state, "{mlp: {}}", "{images: {train: 'file:///nowhere', augment: {mixup: 0.2}}}", "refuse",
                  (char *)"mixup");
}

static void other_jobs_need_none(void **state) {
    struct service_fixture *y = *state;
    struct agent *old = agent_with(y, "old", NULL, 0);
    const int64_t job = submit(y, GPT, TOKENS, "refuse");
    assert_int_equal(agent_expect(old, START)->start->job, job);
    agent_free(old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mixture_needs_an_executor_that_knows_it, service_setup, service_teardown),
        cmocka_unit_test_setup_teardown(changed_data_need_an_executor_that_knows_them, service_setup, service_teardown),
        cmocka_unit_test_setup_teardown(mixup_of_idx_files_needs_an_executor_that_knows_it, service_setup,
                                        service_teardown),
        cmocka_unit_test_setup_teardown(mixup_of_folders_needs_an_executor_that_knows_it, service_setup,
                                        service_teardown),
        cmocka_unit_test_setup_teardown(other_jobs_need_none, service_setup, service_teardown),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
