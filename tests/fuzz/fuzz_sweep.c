/* Sweeps as YAML or JSON from anybody. What resolves must resolve to itself with the same digest, and every trial has
 * as many values as there are parameters: numbers within their ranges, or choices. */
#include "api/codec/text.h"
#include "api/spec/advice.h"
#include "api/spec/sweep.h"
#include "api/spec/sweep_draw.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct codec_options ADVISED = { .advice = spec_advice };

static void check_value(const Trainyard__V1__SweepParameter *p, const struct sweep_value *v) {
    bool found = p->n_choices == 0;
    for (size_t i = 0; i < p->n_choices && !found; i++)
        found = v->text == p->choices[i];
    assert(found);
    if (p->n_choices)
        return;
    char *end;
    const double value = strtod(v->text, &end);
    assert(*v->text && !*end && value >= p->min && value <= p->max);
    assert(!p->integer || !strpbrk(v->text, ".en"));
}

static void check_trial(const Trainyard__V1__SweepSpec *sweep, int trial) {
    struct sweep_value *values = calloc(sweep->n_parameters, sizeof *values);
    struct err e;
    sweep_draw(sweep, trial, values);
    for (size_t i = 0; i < sweep->n_parameters; i++) {
        assert(values[i].path == sweep->parameters[i]->key);
        check_value(sweep->parameters[i]->value, &values[i]);
    }
    free(values);
    status_ignore(sweep_check_trials(sweep, trial, trial, &e));
}

static void check_resolved(const Trainyard__V1__SweepSpec *sweep) {
    Trainyard__V1__SweepSpec *again = NULL;
    struct spec_problems problems = { 0 };
    struct err e;
    uint8_t first[SHA256_BYTES], second[SHA256_BYTES];
    assert(sweep_resolve(sweep, &again, &problems, &e) == ST_OK && problems.n == 0);
    sweep_digest(sweep, first);
    sweep_digest(again, second);
    assert(memcmp(first, second, sizeof first) == 0);
    const int trials = sweep_trials(sweep);
    assert(trials >= 1 && trials <= SWEEP_MAX_TRIALS && trials == sweep_trials(again));
    check_trial(sweep, 1);
    check_trial(sweep, (trials + 1) / 2);
    check_trial(sweep, trials);
    sweep_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    ProtobufCMessage *msg = NULL;
    Trainyard__V1__SweepSpec *sweep = NULL;
    struct spec_problems problems = { 0 };
    struct err e;
    if (codec_parse(&trainyard__v1__sweep_spec__descriptor, (const char *)data, n, &ADVISED, &msg, &e) != ST_OK)
        return 0;
    status_t st = sweep_resolve((Trainyard__V1__SweepSpec *)msg, &sweep, &problems, &e);
    assert((st == ST_OK) == (problems.n == 0));
    if (st == ST_OK)
        check_resolved(sweep);
    spec_problems_done(&problems);
    sweep_free(sweep);
    protobuf_c_message_free_unpacked(msg, NULL);
    return 0;
}
