/* A gang that is too large to be planned whole: each rank plans and proves its own column. All ranks then have the same
 * digest, and any difference between columns changes it. The step of a model of 70 billion parameters on 1,024 ranks is
 * planned within ten seconds and two gigabytes a rank. */
#include "engine/run/gang_plan.h"

#include "base/clock.h"
#include "engine/model/llama.h"
#include "tests/engine/plans.h"
#include "tests/sanitized.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct gang_plan_progress SILENT = { NULL, NULL };
static const struct gpt_shape SMALL = { .layers = 8, .heads = 2, .width = 64, .context = 16, .vocabulary = 97 };

static const struct plan_layout LARGE[] = {
    { .data = 8, .stages = 4, .lanes = 8, .micro_batches = 32 },
    { .data = 8, .stages = 4, .lanes = 16, .micro_batches = 32, .zero = 1, .schedule = &schedule_zero_bubble },
    { .data = 8,
      .stages = 2,
      .virtual_stages = 2,
      .lanes = 8,
      .micro_batches = 16,
      .zero = 1,
      .schedule = &schedule_interleaved },
    { .data = 32, .stages = 1, .lanes = 32, .micro_batches = 64, .zero = 2, .reduce = PLAN_REDUCE_MICRO_BATCH },
    { .data = 32, .stages = 1, .lanes = 32, .micro_batches = 64, .zero = 3, .reduce = PLAN_REDUCE_MICRO_BATCH },
    { .kind = PLAN_EVALUATE, .data = 8, .stages = 4, .lanes = 8, .micro_batches = 32 },
};

static struct plan_layout layout_of(size_t i) {
    struct plan_layout ret = LARGE[i];
    ret.bucket_bytes = 32 << 10;
    ret.optimizer = ret.kind == PLAN_TRAIN ? &optimizer_adamw : NULL;
    return ret;
}

static void every_rank_of_a_large_gang_has_its_plan_and_the_same_digest(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof LARGE / sizeof *LARGE; i++) {
        struct plan_layout layout = layout_of(i);
        struct plans all = plans_build(plans_graph(SMALL, 1), layout);
        uint8_t first[SHA256_BYTES];
        assert_accepted(&all);
        assert_true(all.n >= GANG_PLAN_WHOLE);
        for (layout.rank = 0; layout.rank < all.n; layout.rank++) {
            uint8_t digest[SHA256_BYTES];
            struct bytes mine, want;
            struct plan *plan = NULL;
            struct err e = { "" };
            if (gang_plan_make(all.graph, &layout, &SILENT, &plan, digest, &e) != ST_OK)
                fail_msg("layout %zu, rank %d: %s", i, layout.rank, e.msg);
            memcpy(first, layout.rank == 0 ? digest : first, sizeof first);
            assert_memory_equal(digest, first, sizeof first);
            bytes_init(&mine, 16 << 20);
            bytes_init(&want, 16 << 20);
            assert_int_equal(plan_print(plan, true, &mine, &e), ST_OK);
            assert_int_equal(plan_print(all.of[layout.rank], true, &want, &e), ST_OK);
            assert_string_equal(mine.data, want.data);
            bytes_done(&mine);
            bytes_done(&want);
            plan_free(plan);
        }
        plans_free(&all);
    }
}

/* A column of the second of LARGE: 4 stages. */
struct column {
    struct plans all;
    const struct plan *of[4];
};

static struct column column_new(void) {
    struct column c = { .all = plans_build(plans_graph(SMALL, 1), layout_of(1)) };
    for (int s = 0; s < 4; s++)
        c.of[s] = c.all.of[s * 8 + 5];
    return c;
}

static void digest_is(const struct column *c, const uint8_t want[SHA256_BYTES], bool same, const char *what) {
    uint8_t digest[SHA256_BYTES];
    plan_digest(c->of, 4, digest);
    if ((memcmp(digest, want, sizeof digest) == 0) != same)
        fail_msg("%s: the digest is %s", what, same ? "another" : "the same");
}

static void any_difference_between_columns_changes_the_digest(void **state) {
    (void)state;
    struct column c = column_new();
    uint8_t want[SHA256_BYTES];
    plan_digest(c.of, 4, want);
    struct plan *p = c.all.of[2 * 8 + 5];
    struct instruction *i = &p->queue[QUEUE_COMPUTE].items[p->queue[QUEUE_COMPUTE].n / 2];
    struct instruction *sent = &p->queue[QUEUE_ACTIVATIONS].items[0];
    int *const fields[] = { &i->op,       &i->micro_batch, &i->in_flight,    &i->virtual_stage,
                            &i->buffer,   &i->source,      &i->entry,        &sent->peer,
                            &sent->after, &sent->op,       &p->use_stage[0], &p->buckets[0].rotation };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        char what[32];
        snprintf(what, sizeof what, "field %zu", k);
        *fields[k] = *fields[k] >= 0 ? *fields[k] + 1 : 77;
        digest_is(&c, want, false, what);
        *fields[k] = *fields[k] == 77 ? -1 : *fields[k] - 1;
        digest_is(&c, want, true, what);
    }
    p->buckets[1].begin++;
    digest_is(&c, want, false, "where a bucket begins");
    p->buckets[1].begin--;
    i->begin++; /* an owned range */
    digest_is(&c, want, true, "an owned range");
    p->queue[QUEUE_DATA].n--;
    digest_is(&c, want, false, "the length of a queue");
    p->queue[QUEUE_DATA].n++;
    plans_free(&c.all);
}

/* --- 70 billion parameters --- */

static const struct llama_shape LLAMA_70B = { .layers = 80,
                                              .heads = 64,
                                              .kv_heads = 8,
                                              .width = 8192,
                                              .hidden = 28672,
                                              .context = 4096,
                                              .vocabulary = 32000,
                                              .rope_theta = 10000,
                                              .norm_eps = 1e-5 };

static struct graph *graph_of_70b(void) {
    CLEANUP(graph_freep) struct graph *g = graph_new(DTYPE_BF16);
    struct err e;
    g->micro_batch = 1;
    if (model_llama.build(&LLAMA_70B, &(struct model_data){ 0 }, g, &e) != ST_OK || graph_differentiate(g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return take_ptr(&g);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct watched {
    int64_t last_ms, longest_ms;
    int calls;
};

static void watch(void *ctx) {
    struct watched *w = ctx;
    const int64_t now = clock_mono_ms();
    w->longest_ms = now - w->last_ms > w->longest_ms ? now - w->last_ms : w->longest_ms;
    w->last_ms = now;
    w->calls++;
}

/* Seconds are of the processor, so that other programs on the machine do not count. */
static void plan_70b(struct plan_layout layout, const char *name) {
    static const double SECONDS = SANITIZED ? 100 : 10, BYTES = 2e9;
    static const int LONGEST_MS = 30000; /* without progress */
    const double from = processor_seconds();
    struct graph *g = graph_of_70b();
    struct watched w = { .last_ms = clock_mono_ms() };
    const struct gang_plan_progress progress = { watch, &w };
    struct plan *train = NULL, *evaluate = NULL;
    uint8_t digest[SHA256_BYTES];
    struct rusage used;
    struct err e = { "" };
    layout.optimizer = &optimizer_adamw;
    layout.bucket_bytes = 4 << 20;
    layout.lanes = layout.data;
    layout.rank = 777;
    if (gang_plan_make(g, &layout, &progress, &train, digest, &e) != ST_OK)
        fail_msg("%s", e.msg);
    layout.kind = PLAN_EVALUATE;
    if (gang_plan_make(g, &layout, &progress, &evaluate, digest, &e) != ST_OK)
        fail_msg("%s", e.msg);
    const double seconds = processor_seconds() - from;
    getrusage(RUSAGE_SELF, &used);
    const double bytes = (double)used.ru_maxrss * 1024;
    print_message("%s: %.1f s, %.0f MB, %d reports of progress, %.1f s apart at most\n", name, seconds, bytes * 1e-6,
                  w.calls, (double)w.longest_ms * 1e-3);
    assert_true(fabs((double)graph_parameter_elements(g) / 69e9 - 1) < 0.01);
    assert_true(seconds < SECONDS);
    assert_true(SANITIZED || bytes < BYTES);
    assert_true(w.calls >= 2 * (layout.stages + 1) && (SANITIZED || w.longest_ms < LONGEST_MS));
    plan_free(train);
    plan_free(evaluate);
    graph_free(g);
}

/* In a process of its own, for its peak of memory. */
static void seventy_billion_parameters_on_1024_ranks_take_ten_seconds_and_two_gigabytes(void **state) {
    (void)state;
    static const struct {
        struct plan_layout layout;
        const char *name;
    } RUNS[] = {
        { { .data = 128, .stages = 8, .zero = 1, .micro_batches = 2048 }, "data 128 x pipeline 8, zero 1" },
        { { .data = 64, .stages = 16, .zero = 1, .micro_batches = 1024 }, "data 64 x pipeline 16, zero 1" },
        { { .data = 1024, .stages = 1, .zero = 3, .micro_batches = 1024, .reduce = PLAN_REDUCE_MICRO_BATCH },
          "data 1024, zero 3" },
    };
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            plan_70b(RUNS[i].layout, RUNS[i].name);
            fflush(NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_of_a_large_gang_has_its_plan_and_the_same_digest),
        cmocka_unit_test(any_difference_between_columns_changes_the_digest),
        cmocka_unit_test(seventy_billion_parameters_on_1024_ranks_take_ten_seconds_and_two_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
