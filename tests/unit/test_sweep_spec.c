/* api/spec: sweeps. The values of trials follow from the sweep and the number alone, and each mistake gives one
 * sentence that names its field. */
#include "api/codec/text.h"
#include "api/spec/problems.h"
#include "api/spec/sweep.h"
#include "api/spec/sweep_draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        if ((call) != ST_OK)                                                                                           \
            fail_msg("%s: %s", #call, e.msg);                                                                          \
    } while (0)

#define JOB "job: {program: {command: [sh, -c, exit]}, labels: {team: a}}\n"

static Trainyard__V1__SweepSpec *parse(const char *text) {
    ProtobufCMessage *msg = NULL;
    OK(codec_parse(&trainyard__v1__sweep_spec__descriptor, text, strlen(text), NULL, &msg, &e));
    return (Trainyard__V1__SweepSpec *)msg;
}

static Trainyard__V1__SweepSpec *resolve(const char *text) {
    struct spec_problems problems = { 0 };
    Trainyard__V1__SweepSpec *given = parse(text), *sweep = NULL;
    OK(sweep_resolve(given, &sweep, &problems, &e));
    assert_int_equal(problems.n, 0);
    sweep_free(given);
    return sweep;
}

/* The values of a trial as "a=1 b=2". */
static const char *values_of(const Trainyard__V1__SweepSpec *sweep, int trial) {
    static char text[2000];
    struct sweep_value *values = calloc(sweep->n_parameters, sizeof *values);
    size_t used = 0;
    sweep_draw(sweep, trial, values);
    for (size_t i = 0; i < sweep->n_parameters; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%s", i ? " " : "", values[i].path,
                                 values[i].text);
    free(values);
    return text;
}

static void a_grid_has_every_combination_in_the_order_of_the_paths(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *sweep = resolve("name: s\n" JOB "parameters:\n"
                                              "  b: {min: 1, max: 100, scale: log, count: 3}\n"
                                              "  a: {choices: [x, '', 'y=1']}\n"
                                              "  c: {min: 0, max: 1, integer: true, count: 2}\n");
    static const char *const expected[] = {
        "a=x b=1 c=0",   "a=x b=1 c=1",   "a=x b=10 c=0",   "a=x b=10 c=1",   "a=x b=100 c=0",   "a=x b=100 c=1",
        "a= b=1 c=0",    "a= b=1 c=1",    "a= b=10 c=0",    "a= b=10 c=1",    "a= b=100 c=0",    "a= b=100 c=1",
        "a=y=1 b=1 c=0", "a=y=1 b=1 c=1", "a=y=1 b=10 c=0", "a=y=1 b=10 c=1", "a=y=1 b=100 c=0", "a=y=1 b=100 c=1",
    };
    assert_int_equal(sweep_trials(sweep), sizeof expected / sizeof *expected);
    for (int i = 0; i < sweep_trials(sweep); i++)
        assert_string_equal(values_of(sweep, i + 1), expected[i]);
    sweep_free(sweep);
}

static void a_grid_of_a_range_has_both_ends_exactly(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *sweep = resolve("name: s\n" JOB
                                              "parameters: {a: {min: 0.0003, max: 0.7, scale: log, count: 7}}\n");
    assert_string_equal(values_of(sweep, 1), "a=0.0003");
    assert_string_equal(values_of(sweep, 7), "a=0.7");
    sweep_free(sweep);
}

#define RANDOM(seed, more)                                                                                             \
    "name: s\n" JOB "search: {random: {trials: 10000, seed: " seed "}}\nparameters:\n"                                 \
    "  lr: {min: 0.0001, max: 0.1, scale: log}\n  n: {min: 3, max: 7, integer: true}\n" more

/* Python's hashlib and math gave the literals, by the rule in sweep_draw.h. They must never change. */
static void random_values_are_the_same_in_every_run_and_version(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *sweep = resolve(RANDOM("7", "  z: {choices: [a, b, c]}\n"));
    assert_string_equal(values_of(sweep, 1), "lr=0.000155184 n=4 z=a");
    assert_string_equal(values_of(sweep, 2), "lr=0.000361794 n=6 z=a");
    assert_string_equal(values_of(sweep, 10000), "lr=0.00411347 n=6 z=a");
    sweep_free(sweep);
}

static void random_values_depend_on_seed_trial_and_path_alone(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *one = resolve(RANDOM("7", "")), *more = resolve(RANDOM("7", "  a: {choices: [x, y]}\n"));
    Trainyard__V1__SweepSpec *other = resolve(RANDOM("8", ""));
    int same = 0;
    for (int trial = 1; trial <= 1000; trial++) {
        char first[200];
        snprintf(first, sizeof first, "%s", values_of(one, trial));
        assert_string_equal(strchr(values_of(more, trial), ' ') + 1, first); /* the value of `a` stands before */
        same += strcmp(values_of(other, trial), first) == 0;
    }
    assert_int_equal(same, 0);
    sweep_free(one);
    sweep_free(more);
    sweep_free(other);
}

/* Each fifth of the integers and each half of the logarithms gets its share, and no value is outside. */
static void random_values_are_spread_evenly_over_the_range(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *sweep = resolve(RANDOM("1", ""));
    int counts[10] = { 0 }, low = 0;
    for (int trial = 1; trial <= 10000; trial++) {
        struct sweep_value values[2];
        sweep_draw(sweep, trial, values);
        const double lr = strtod(values[0].text, NULL);
        const long n = strtol(values[1].text, NULL, 10);
        assert_true(lr >= 0.0001 && lr <= 0.1);
        assert_true(n >= 3 && n <= 7);
        counts[n]++;
        low += lr < sqrt(0.0001 * 0.1);
    }
    for (int n = 3; n <= 7; n++)
        assert_true(counts[n] > 1800 && counts[n] < 2200);
    assert_true(low > 4800 && low < 5200);
    sweep_free(sweep);
}

static void a_trials_spec_has_the_values_a_name_and_labels(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *sweep = resolve(
        "name: s\n" JOB "parameters: {program.environment.LR: {choices: [1, 2]}, parallel.data: {choices: [2, 3]}}\n");
    Trainyard__V1__JobSpec *job = NULL;
    OK(sweep_check_trials(sweep, 1, 4, &e));
    OK(sweep_trial_spec(sweep, 3, &job, &e));
    assert_string_equal(job->name, "s-3");
    assert_int_equal(job->parallel->data, 3);
    assert_int_equal(job->program->n_environment, 1);
    assert_string_equal(job->program->environment[0]->key, "LR");
    assert_string_equal(job->program->environment[0]->value, "1");
    assert_int_equal(job->n_labels, 3);
    assert_string_equal(job->labels[0]->value, "a");
    assert_string_equal(job->labels[1]->key, "sweep");
    assert_string_equal(job->labels[1]->value, "s");
    assert_string_equal(job->labels[2]->key, "trial");
    assert_string_equal(job->labels[2]->value, "3");
    spec_free(job);
    sweep_free(sweep);
}

static void the_digest_ignores_the_order_of_maps_and_nothing_else(void **state) {
    (void)state;
    static const char *const texts[] = {
        "name: s\n" JOB "parameters: {priority: {choices: [1]}, queue: {choices: [a]}}\n",
        "name: s\n" JOB "parameters: {queue: {choices: [a]}, priority: {choices: [1]}}\n",
        "name: s\njob: {program: {command: [sh, -c, exit]}, labels: {team: b}}\n"
        "parameters: {priority: {choices: [1]}, queue: {choices: [a]}}\n",
        "name: s\n" JOB "parameters: {priority: {choices: [2]}, queue: {choices: [a]}}\n",
    };
    uint8_t digests[4][SHA256_BYTES];
    for (int i = 0; i < 4; i++) {
        Trainyard__V1__SweepSpec *sweep = resolve(texts[i]);
        sweep_digest(sweep, digests[i]);
        sweep_free(sweep);
    }
    assert_memory_equal(digests[0], digests[1], SHA256_BYTES);
    assert_memory_not_equal(digests[0], digests[2], SHA256_BYTES);
    assert_memory_not_equal(digests[0], digests[3], SHA256_BYTES);
}

#define PARAMETER(text)  "name: s\n" JOB "parameters: {queue: " text "}\n"
#define RANDOM_ONE(text) "name: s\n" JOB "search: {random: {trials: 2}}\nparameters: {queue: " text "}\n"
#define TOO_LONG_NAME    "a23456789b123456789c123456789d123456789e123456789f12345678"
static const char *const WRONG[][2] = {
    { "", "name: must be given, 1 to 63 letters, digits, '.', '_' or '-'" },
    { "name: " TOO_LONG_NAME "\n" JOB "parameters: {queue: {choices: [a]}}\n",
      "name: has 58 characters; the name of a sweep has at most 57" },
    { "name: s\n" JOB, "parameters: must not be empty" },
    { "name: s\nparameters: {queue: {choices: [a]}}\n",
      "job: must be given: a job spec, or the path of a file with one" },
    { "name: s\njob: a.yaml\nparameters: {queue: {choices: [a]}}\n",
      "job: 'a.yaml' is the path of a file, which only a client reads" },
    { PARAMETER("{}"), "parameters.queue: give either choices, or min and max" },
    { PARAMETER("{min: 1, count: 2}"), "parameters.queue: give either choices, or min and max" },
    { PARAMETER("{choices: [a], min: 1}"),
      "parameters.queue: choices cannot be given with min, max, integer or count" },
    { PARAMETER("{choices: [a, b, a]}"), "parameters.queue.choices[2]: 'a' is given twice" },
    { PARAMETER("{min: 1, max: 1, count: 2}"), "parameters.queue.max: 1 is not above min 1" },
    { PARAMETER("{min: NaN, max: 1, count: 2}"),
      "parameters.queue: min NaN and max 1 are not the ends of a finite range" },
    { PARAMETER("{min: 0, max: 1, scale: log, count: 2}"),
      "parameters.queue.min: 0 is not above 0, as scale log needs" },
    { PARAMETER("{min: 0, max: 1, scale: square, count: 2}"),
      "parameters.queue.scale: 'square' is not one of: linear, log" },
    { PARAMETER("{min: 0.5, max: 2, integer: true, count: 2}"),
      "parameters.queue: integer needs whole numbers as min 0.5 and max 2, up to 2^53" },
    { PARAMETER("{min: 1, max: 3, integer: true, count: 4}"),
      "parameters.queue.count: 4 values of this range contain 2 twice" },
    { PARAMETER("{min: 1, max: 3, count: 1}"), "parameters.queue.count: 1 is not from 2 to 1000" },
    { PARAMETER("{min: 1, max: 3}"), "parameters.queue.count: must be given for a range of a grid" },
    { RANDOM_ONE("{min: 1, max: 3, count: 3}"), "parameters.queue.count: only a grid has it" },
    { "name: s\n" JOB "search: {random: {}}\nparameters: {queue: {choices: [a]}}\n",
      "search.random.trials: must be given, from 1 to 10000" },
    { "name: s\n" JOB "search: {random: {trials: 10001}}\nparameters: {queue: {choices: [a]}}\n",
      "search.random.trials: 10001 is not from 1 to 10000" },
    { "name: s\n" JOB "search: {asha: {trials: 2, min_steps: 5}}\nparameters: {queue: {choices: [a]}}\n",
      "search.asha.max_steps: must be given, because the job has no train.steps that all trials share" },
    { "name: s\n" JOB "search: {asha: {trials: 2, min_steps: 5, max_steps: 5}}\nparameters: {queue: {choices: [a]}}\n",
      "search.asha.min_steps: 5 is not below max_steps 5" },
    { "name: s\n" JOB "search: {asha: {trials: 2, max_steps: 5}}\nparameters: {queue: {choices: [a]}}\n",
      "search.asha.min_steps: must be given, from 1 to 1000000000000" },
    { "name: s\njob: {train: {steps: 9}}\nsearch: {asha: {trials: 2, min_steps: 5}}\n"
      "parameters: {train.steps: {choices: [8, 9]}}\n",
      "search.asha.max_steps: must be given, because the job has no train.steps that all trials share" },
    { "name: s\n" JOB "parameters: {name: {choices: [a]}}\n",
      "parameters.name: the name of a trial's job follows from the name of the sweep" },
    { "name: s\n" JOB "parameters: {a: {min: 0, max: 1, count: 101}, b: {min: 0, max: 1, count: 100}}\n",
      "search.grid: the parameters have more than 10000 combinations" },
    { "name: s\n" JOB "goal: best\nparameters: {queue: {choices: [a]}}\n",
      "goal: 'best' is not one of: minimize, maximize" },
};

static void every_mistake_gives_a_sentence_with_its_field(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        struct spec_problems problems = { 0 };
        struct err why = { "" };
        Trainyard__V1__SweepSpec *given = parse(WRONG[i][0]), *sweep = NULL;
        assert_int_equal(sweep_resolve(given, &sweep, &problems, &why), ST_INVALID_ARGUMENT);
        assert_null(sweep);
        assert_string_equal(why.msg, WRONG[i][1]);
        assert_string_equal(problems.lines[0], WRONG[i][1]);
        spec_problems_done(&problems);
        sweep_free(given);
    }
}

static void asha_draws_as_random_does_and_ends_with_the_steps_of_the_job(void **state) {
    (void)state;
    Trainyard__V1__SweepSpec *random = resolve(RANDOM("7", ""));
    Trainyard__V1__SweepSpec *asha = resolve("name: s\njob: {train: {steps: 900}}\n"
                                             "search: {asha: {trials: 20, seed: 7, min_steps: 100}}\nparameters:\n"
                                             "  lr: {min: 0.0001, max: 0.1, scale: log}\n"
                                             "  n: {min: 3, max: 7, integer: true}\n");
    assert_int_equal(sweep_trials(asha), 20);
    assert_int_equal(asha->search->asha->max_steps, 900);
    assert_int_equal(asha->search->asha->eta, 3);
    for (int trial = 1; trial <= 20; trial++) {
        char values[200];
        snprintf(values, sizeof values, "%s", values_of(random, trial));
        assert_string_equal(values_of(asha, trial), values);
    }
    sweep_free(random);
    sweep_free(asha);
}

static void a_wrong_trial_is_named_with_its_values(void **state) {
    (void)state;
    struct err why = { "" };
    Trainyard__V1__SweepSpec *sweep = resolve("name: s\n" JOB "parameters: {priority: {choices: [1, x, 2]}}\n");
    assert_int_equal(sweep_check_trials(sweep, 1, 3, &why), ST_INVALID_ARGUMENT);
    assert_string_equal(why.msg, "trial 2 (priority=x): parameters: priority: expected an integer, found 'x'");
    OK(sweep_check_trials(sweep, 3, 3, &e));
    sweep_free(sweep);
    sweep = resolve("name: s\n" JOB "parameters: {prioritty: {choices: [1]}}\n");
    assert_int_equal(sweep_check_trials(sweep, 1, 1, &why), ST_INVALID_ARGUMENT);
    assert_string_equal(why.msg, "trial 1 (prioritty=1): parameters: prioritty: unknown field; did you mean priority?");
    sweep_free(sweep);
    sweep = resolve("name: s\n" JOB "parameters: {parallel.data: {choices: [1, 2000]}}\n");
    assert_int_equal(sweep_check_trials(sweep, 1, 2, &why), ST_INVALID_ARGUMENT);
    assert_string_equal(why.msg, "trial 2 (parallel.data=2000): parallel.data: 2000 is not from 1 to 1024");
    sweep_free(sweep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_has_every_combination_in_the_order_of_the_paths),
        cmocka_unit_test(a_grid_of_a_range_has_both_ends_exactly),
        cmocka_unit_test(random_values_are_the_same_in_every_run_and_version),
        cmocka_unit_test(random_values_depend_on_seed_trial_and_path_alone),
        cmocka_unit_test(random_values_are_spread_evenly_over_the_range),
        cmocka_unit_test(a_trials_spec_has_the_values_a_name_and_labels),
        cmocka_unit_test(the_digest_ignores_the_order_of_maps_and_nothing_else),
        cmocka_unit_test(every_mistake_gives_a_sentence_with_its_field),
        cmocka_unit_test(asha_draws_as_random_does_and_ends_with_the_steps_of_the_job),
        cmocka_unit_test(a_wrong_trial_is_named_with_its_values),
    };
    return cmocka_run_group_tests_name("sweep specs", tests, NULL, NULL);
}
