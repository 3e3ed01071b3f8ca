/* 1,024 ranks that are threads of this process open an engine each, train a step, and evaluate: the plans by columns,
 * the agreement of all ranks, and every collective at the largest size. */
#include "tests/engine/trainee.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <cmocka.h>

/* Sanitized threads take several times as much memory. */
enum { DATA = SANITIZED ? 8 : 256, STAGES = 4, RANKS = DATA * STAGES };

struct one {
    pthread_t thread;
    struct collective *collective;
    const struct engine_config *config;
    status_t status;
    int64_t opened_ms, ended_ms;
    double validation_loss;
    struct err err;
};

static void *run_one(void *arg) {
    struct one *o = arg;
    struct engine *engine = NULL;
    enum engine_outcome outcome;
    o->status = engine_open(o->config, o->collective, NULL, &engine, &o->err);
    o->opened_ms = clock_mono_ms();
    if (o->status == ST_OK)
        o->status = engine_run(engine, &outcome, &o->err);
    if (o->status == ST_OK)
        o->validation_loss = engine->training.weights.loss;
    engine_close(engine);
    collective_close(o->collective);
    o->ended_ms = clock_mono_ms();
    return NULL;
}

static void a_gang_of_1024_ranks_opens_trains_and_evaluates(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    struct one *all = calloc(RANKS, sizeof *all);
    struct collective **collectives = calloc(RANKS, sizeof(struct collective *));
    struct err e;
    assert_true(all && collectives);
    t->config.layout = (struct engine_layout){ .data = DATA, .pipeline = STAGES, .zero = 1 };
    t->config.model.gpt.layers = 4;
    t->config.train.global_batch = DATA;
    t->config.train.micro_batch = 1;
    t->config.train.lanes = DATA;
    t->config.train.steps = 1;
    t->config.train.schedule.warmup_steps = 0;
    assert_int_equal(collective_open_threads(RANKS, 300000, collectives, &e), ST_OK);
    const int64_t start = clock_mono_ms();
    for (int r = 0; r < RANKS; r++) {
        all[r].collective = collectives[r];
        all[r].config = &t->config;
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_one, &all[r]), 0);
    }
    int64_t opened = 0, ended = 0;
    for (int r = 0; r < RANKS; r++) {
        pthread_join(all[r].thread, NULL);
        if (all[r].status != ST_OK)
            fail_msg("rank %d: %s", r, all[r].err.msg);
        assert_true(all[r].validation_loss > 0 && all[r].validation_loss == all[0].validation_loss);
        opened = all[r].opened_ms > opened ? all[r].opened_ms : opened;
        ended = all[r].ended_ms > ended ? all[r].ended_ms : ended;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    const double megabytes = (double)used.ru_maxrss / 1024 / RANKS;
    print_message("%d ranks: opened after %.1f s, ended after %.1f s, %.1f MB a rank\n", RANKS,
                  (double)(opened - start) * 1e-3, (double)(ended - start) * 1e-3, megabytes);
    assert_true(SANITIZED || megabytes < 8);
    free(all);
    free(collectives);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_gang_of_1024_ranks_opens_trains_and_evaluates) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
