/* The message of `trainyard-train plan`. */
#include "api/codec/message.h"
#include "executor/worker/plan_message.h"
#include "tests/engine/gpt_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check_message(const struct plan_facts *facts) {
    CLEANUP(message_freep) Trainyard__V1__Plan *m = plan_message_make(facts);
    assert_string_equal(m->pipeline_schedule, "gpipe");
    assert_string_equal(m->recompute, "block");
    assert_string_equal(m->reduce, "micro_batch");
    assert_string_equal(m->numerics, "fast");
    assert_string_equal(m->optimizer, "adamw");
    assert_int_equal(m->n_memory, 2);
    assert_int_equal(m->memory[1]->n_families, FAMILIES);
    assert_true(m->n_wire > 0 && m->wire[0]->bytes > 0);
    double busy[2] = { 0 };
    for (size_t i = 0; i < m->n_spans; i++) {
        const Trainyard__V1__PlannedSpan *s = m->spans[i];
        assert_true(s->begin_seconds < s->end_seconds && s->end_seconds <= m->step_seconds * (1 + 1e-9));
        assert_true(i == 0 || s->stage > m->spans[i - 1]->stage || s->begin_seconds >= m->spans[i - 1]->end_seconds);
        busy[s->stage] += s->end_seconds - s->begin_seconds;
    }
    for (int i = 0; i < 2; i++)
        assert_true(busy[i] > 0.99 * m->stages[i]->busy_seconds && busy[i] < 1.01 * m->stages[i]->busy_seconds);
    assert_string_equal(m->spans[0]->work, "forward");
}

static void a_plans_message_has_its_layout_its_memory_and_its_traffic(void **state) {
    (void)state;
    static const struct gpt_shape SHAPE = { .layers = 4, .heads = 2, .width = 32, .context = 8, .vocabulary = 65 };
    const struct plan_layout layout = { .stages = 2,
                                        .schedule = &schedule_gpipe,
                                        .recompute = RECOMPUTE_BLOCK,
                                        .reduce = PLAN_REDUCE_MICRO_BATCH,
                                        .lanes = 2,
                                        .micro_batches = 4,
                                        .bucket_bytes = 8192,
                                        .optimizer = &optimizer_adamw };
    const struct engine_config config = {
        .train = { .numerics = ENGINE_NUMERICS_FAST, .global_batch = 8, .optimizer = { .kind = &optimizer_adamw } }
    };
    CLEANUP(graph_freep) struct graph *graph = NULL;
    struct plan_profile profile;
    struct plan_report report;
    struct err e = { "" };
    assert_int_equal(gpt_graph(&SHAPE, 2, &graph, &e), ST_OK);
    assert_int_equal(plan_profile_find("h200", &profile, &e), ST_OK);
    if (plan_report_make(graph, &layout, NULL, &profile, &report, &e) != ST_OK)
        fail_msg("%s", e.msg);
    struct plan_facts facts = { .report = &report, .config = &config, .profile = &profile, .note = "a note" };
    check_message(&facts);
    plan_report_done(&report);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_plans_message_has_its_layout_its_memory_and_its_traffic) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
