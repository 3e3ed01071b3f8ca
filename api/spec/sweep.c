/* A sweep is resolved without its base: the walks that fill in defaults and check fields (defaults.c, rules_fields.c)
 * would enter the base too, but a base is complete only with the values of a trial. So the base is taken out of the
 * copy and put back afterwards.
 *
 * Rules of a parameter that compare fields are checked only if each field is right by itself. Then sweep_check_trials
 * makes and resolves the spec of every trial, so that a wrong value is found before the first job exists. */
#include "api/spec/sweep.h"

#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/spec/advice.h"
#include "api/spec/defaults.h"
#include "api/spec/digest.h"
#include "api/spec/problems.h"
#include "api/spec/rules.h"
#include "api/spec/sweep_draw.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A double has all integers up to this. */
#define MAX_INTEGER 9007199254740992.0

enum { PATH_BYTES = 192, NUMBER_BYTES = 32 };

typedef Trainyard__V1__SweepParameter parameter_t;

/* ---- rules of a parameter ---- */

static void check_choices(const parameter_t *p, const char *path, struct spec_problems *problems) {
    if (p->_min_case || p->_max_case || p->_count_case || p->integer) {
        problem_add(problems, "%s: choices cannot be given with min, max, integer or count", path);
        return;
    }
    for (size_t i = 0; i < p->n_choices; i++) {
        if (strlen(p->choices[i]) > SWEEP_CHOICE_BYTES)
            problem_add(problems, "%s.choices[%zu]: %zu bytes are more than %d", path, i, strlen(p->choices[i]),
                        SWEEP_CHOICE_BYTES);
        for (size_t k = 0; k < i; k++)
            if (strcmp(p->choices[i], p->choices[k]) == 0) {
                problem_add(problems, "%s.choices[%zu]: '%.60s' is given twice", path, i, p->choices[i]);
                return;
            }
    }
}

static bool is_integer(double value) { return value == floor(value) && fabs(value) <= MAX_INTEGER; }

static bool check_ends(const parameter_t *p, const char *path, struct spec_problems *problems) {
    char min[NUMBER_BYTES], max[NUMBER_BYTES];
    codec_double_text(p->min, min);
    codec_double_text(p->max, max);
    if (!p->_min_case || !p->_max_case)
        problem_add(problems, "%s: give either choices, or min and max", path);
    else if (!isfinite(p->min) || !isfinite(p->max) || p->max - p->min > 1e300)
        problem_add(problems, "%s: min %s and max %s are not the ends of a finite range", path, min, max);
    else if (p->min >= p->max)
        problem_add(problems, "%s.max: %s is not above min %s", path, max, min);
    else if (strcmp(p->scale, "log") == 0 && p->min <= 0)
        problem_add(problems, "%s.min: %s is not above 0, as scale log needs", path, min);
    else if (p->integer && !(is_integer(p->min) && is_integer(p->max)))
        problem_add(problems, "%s: integer needs whole numbers as min %s and max %s, up to 2^53", path, min, max);
    else
        return true;
    return false;
}

/* Neighbours are the only values that rounding can make equal. */
static void check_count(const parameter_t *p, const char *path, struct spec_problems *problems) {
    char value[NUMBER_BYTES], before[NUMBER_BYTES] = "";
    for (int64_t i = 0; i < p->count; i++) {
        sweep_grid_number(p, i, value);
        if (strcmp(value, before) == 0) {
            problem_add(problems, "%s.count: %d values of this range contain %s twice", path, p->count, value);
            return;
        }
        memcpy(before, value, sizeof before);
    }
}

static void check_range(const parameter_t *p, bool grid, const char *path, struct spec_problems *problems) {
    if (!check_ends(p, path, problems))
        return;
    if (grid && !p->_count_case)
        problem_add(problems, "%s.count: must be given for a range of a grid", path);
    else if (!grid && p->_count_case)
        problem_add(problems, "%s.count: only a grid has it", path);
    else if (grid)
        check_count(p, path, problems);
}

/* Of the fields by themselves, then of the fields together. */
static status_t resolve_parameter(const Trainyard__V1__SweepSpec *sweep, size_t i, struct spec_problems *problems,
                                  struct err *e) {
    char path[PATH_BYTES];
    const Trainyard__V1__SweepSpec__ParametersEntry *entry = sweep->parameters[i];
    const size_t before = problems->n;
    snprintf(path, sizeof path, "parameters.%s", entry->key);
    TRY(defaults_fill_constants(&entry->value->base, e));
    rules_fields(&entry->value->base, path, problems);
    if (i > 0 && strcmp(entry->key, sweep->parameters[i - 1]->key) == 0)
        problem_add(problems, "%s: given twice", path); /* a map on the wire may repeat a key */
    if (strcmp(entry->key, "name") == 0)
        problem_add(problems, "%s: the name of a trial's job follows from the name of the sweep", path);
    if (problems->n > before)
        return ST_OK;
    if (entry->value->n_choices)
        check_choices(entry->value, path, problems);
    else
        check_range(entry->value, sweep->search->kind_case == TRAINYARD__V1__SEARCH_SPEC__KIND_GRID, path, problems);
    return ST_OK;
}

/* ---- the sweep ---- */

static int by_path(const void *a, const void *b) {
    Trainyard__V1__SweepSpec__ParametersEntry *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static int64_t grid_size(const Trainyard__V1__SweepSpec *sweep) {
    int64_t n = 1;
    for (size_t i = 0; i < sweep->n_parameters && n <= SWEEP_MAX_TRIALS; i++)
        n *= sweep_grid_values(sweep->parameters[i]->value);
    return n;
}

static bool is_parameter(const Trainyard__V1__SweepSpec *sweep, const char *path) {
    for (size_t i = 0; i < sweep->n_parameters; i++)
        if (strcmp(sweep->parameters[i]->key, path) == 0)
            return true;
    return false;
}

/* The steps of every trial, which its job spec gives; 0: they are not known, or differ. */
static int64_t steps_of(const Trainyard__V1__SweepSpec *sweep, const Trainyard__V1__JobSpec *job) {
    return job->train && !is_parameter(sweep, "train") && !is_parameter(sweep, "train.steps") ? job->train->steps : 0;
}

static void check_asha(const Trainyard__V1__SweepSpec *sweep, const Trainyard__V1__JobSpec *job,
                       struct spec_problems *p) {
    Trainyard__V1__AshaSearch *asha = sweep->search->asha;
    if (!asha->_max_steps_case && steps_of(sweep, job) > 0) {
        asha->max_steps = steps_of(sweep, job);
        asha->_max_steps_case = TRAINYARD__V1__ASHA_SEARCH___MAX_STEPS_MAX_STEPS;
    }
    if (!asha->_max_steps_case)
        problem_add(p,
                    "search.asha.max_steps: must be given, because the job has no train.steps that all trials share");
    else if (asha->min_steps >= asha->max_steps)
        problem_add(p, "search.asha.min_steps: %lld is not below max_steps %lld", (long long)asha->min_steps,
                    (long long)asha->max_steps);
}

static void check_search(const Trainyard__V1__SweepSpec *sweep, const Trainyard__V1__JobSpec *job,
                         struct spec_problems *p) {
    if (sweep->search->kind_case == TRAINYARD__V1__SEARCH_SPEC__KIND_ASHA)
        check_asha(sweep, job, p);
    if (sweep->search->kind_case == TRAINYARD__V1__SEARCH_SPEC__KIND_GRID && grid_size(sweep) > SWEEP_MAX_TRIALS)
        problem_add(p, "search.grid: the parameters have more than %d combinations", SWEEP_MAX_TRIALS);
}

/* Without the base, which is in `job`. */
static status_t resolve_fields(Trainyard__V1__SweepSpec *sweep, const Trainyard__V1__JobSpec *job,
                               struct spec_problems *p, struct err *e) {
    TRY(defaults_fill_constants(&sweep->base, e));
    rules_fields(&sweep->base, "", p);
    if (strlen(sweep->name) > SWEEP_NAME_CHARS)
        problem_add(p, "name: has %zu characters; the name of a sweep has at most %d", strlen(sweep->name),
                    SWEEP_NAME_CHARS);
    if (*sweep->job)
        problem_add(p, "job: '%.100s' is the path of a file, which only a client reads", sweep->job);
    else if (!job)
        problem_add(p, "job: must be given: a job spec, or the path of a file with one");
    for (size_t i = 0; i < sweep->n_parameters; i++)
        if (!sweep->parameters[i]->value)
            problem_add(p, "parameters.%s: must be given: choices, or min and max", sweep->parameters[i]->key);
    if (p->n > 0)
        return ST_OK;
    qsort(sweep->parameters, sweep->n_parameters, sizeof(void *), by_path);
    for (size_t i = 0; i < sweep->n_parameters; i++)
        TRY(resolve_parameter(sweep, i, p, e));
    if (p->n == 0)
        check_search(sweep, job, p);
    return ST_OK;
}

status_t sweep_resolve(const Trainyard__V1__SweepSpec *given, Trainyard__V1__SweepSpec **ret,
                       struct spec_problems *problems, struct err *e) {
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *sweep = NULL;
    TRY(message_copy(&given->base, &sweep, e));
    Trainyard__V1__JobSpec *job = sweep->spec;
    sweep->spec = NULL;
    status_t st = resolve_fields(sweep, job, problems, e);
    sweep->spec = job;
    if (st == ST_OK && problems->n > 0)
        st = err_set(e, ST_INVALID_ARGUMENT, "%s", problems->lines[0]);
    if (st == ST_OK)
        *ret = take_ptr(&sweep);
    return st;
}

Trainyard__V1__SweepSpec *sweep_free(Trainyard__V1__SweepSpec *sweep) {
    if (sweep)
        trainyard__v1__sweep_spec__free_unpacked(sweep, NULL);
    return NULL;
}

int sweep_trials(const Trainyard__V1__SweepSpec *sweep) {
    switch (sweep->search->kind_case) {
    case TRAINYARD__V1__SEARCH_SPEC__KIND_RANDOM: return sweep->search->random->trials;
    case TRAINYARD__V1__SEARCH_SPEC__KIND_ASHA: return sweep->search->asha->trials;
    default: return (int)grid_size(sweep);
    }
}

bool sweep_maximizes(const Trainyard__V1__SweepSpec *sweep) { return strcmp(sweep->goal, "maximize") == 0; }

void sweep_digest(const Trainyard__V1__SweepSpec *sweep, uint8_t ret[SHA256_BYTES]) {
    Trainyard__V1__SweepSpec alone = *sweep; /* shallow: without the base, whose maps may be in any order */
    uint8_t job[SHA256_BYTES];
    alone.spec = NULL;
    spec_digest(sweep->spec, "", job);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(trainyard__v1__sweep_spec__get_packed_size(&alone), 1);
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, packed, trainyard__v1__sweep_spec__pack(&alone, packed));
    sha256_update(&s, job, sizeof job);
    sha256_final(&s, ret);
}

/* ---- trials ---- */

static status_t set_values(const struct sweep_value *values, size_t n, Trainyard__V1__JobSpec *job, struct err *e) {
    static const struct codec_options reading = { .advice = spec_advice };
    for (size_t i = 0; i < n; i++) {
        status_t st = codec_set_path(&job->base, values[i].path, values[i].text, &reading, e);
        if (st != ST_OK)
            return err_prefix(e, ST_INVALID_ARGUMENT, "parameters: ");
    }
    return ST_OK;
}

static status_t set_identity(const Trainyard__V1__SweepSpec *sweep, int trial, Trainyard__V1__JobSpec *job,
                             struct err *e) {
    char name[SWEEP_NAME_CHARS + 16], number[16];
    snprintf(number, sizeof number, "%d", trial);
    snprintf(name, sizeof name, "%s-%d", sweep->name, trial);
    TRY(codec_set_path(&job->base, "name", name, NULL, e));
    TRY(codec_set_path(&job->base, "labels.sweep", sweep->name, NULL, e));
    return codec_set_path(&job->base, "labels.trial", number, NULL, e);
}

status_t sweep_trial_spec(const Trainyard__V1__SweepSpec *sweep, int trial, Trainyard__V1__JobSpec **ret,
                          struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *job = NULL;
    CLEANUP(freep) struct sweep_value *values = alloc_zeroed(sweep->n_parameters, sizeof *values);
    TRY(spec_copy(sweep->spec, &job, e));
    sweep_draw(sweep, trial, values);
    TRY(set_values(values, sweep->n_parameters, job, e));
    TRY(set_identity(sweep, trial, job, e));
    *ret = take_ptr(&job);
    return ST_OK;
}

/* "trial 3 (train.steps=5, ...): "; the values may be cut. */
static void describe_trial(const Trainyard__V1__SweepSpec *sweep, int trial, char *ret, size_t cap) {
    CLEANUP(freep) struct sweep_value *values = alloc_zeroed(sweep->n_parameters, sizeof *values);
    size_t used = (size_t)snprintf(ret, cap, "trial %d", trial);
    sweep_draw(sweep, trial, values);
    for (size_t i = 0; i < sweep->n_parameters && used < cap; i++)
        used += (size_t)snprintf(ret + used, cap - used, "%s%.60s=%.30s", i ? ", " : " (", values[i].path,
                                 values[i].text);
    if (used < cap)
        snprintf(ret + used, cap - used, ")");
}

status_t sweep_check_trials(const Trainyard__V1__SweepSpec *sweep, int from, int to, struct err *e) {
    for (int trial = from; trial <= to; trial++) {
        CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
        CLEANUP(spec_freep) Trainyard__V1__JobSpec *resolved = NULL;
        status_t st = sweep_trial_spec(sweep, trial, &given, e);
        if (st == ST_OK)
            st = spec_resolve(given, &resolved, NULL, e);
        char which[160];
        if (st != ST_OK)
            describe_trial(sweep, trial, which, sizeof which);
        if (st != ST_OK)
            return err_prefix(e, st, "%s: ", which);
    }
    return ST_OK;
}
