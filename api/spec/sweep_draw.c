#include "api/spec/sweep_draw.h"

#include "base/sha256.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static void put_bytes(struct sha256 *s, uint64_t number) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    sha256_update(s, bytes, sizeof bytes);
}

/* In [0, 1). */
static double uniform(int64_t seed, int trial, const char *path) {
    static const char domain[] = "trainyard sweep";
    uint8_t digest[SHA256_BYTES];
    uint64_t bits = 0;
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, domain, sizeof domain);
    put_bytes(&s, (uint64_t)seed);
    put_bytes(&s, (uint64_t)trial);
    sha256_update(&s, path, strlen(path));
    sha256_final(&s, digest);
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | digest[i];
    return ldexp((double)(bits >> 11), -53);
}

static double clamp(double value, double min, double max) { return value < min ? min : value > max ? max : value; }

static bool is_log(const Trainyard__V1__SweepParameter *p) { return strcmp(p->scale, "log") == 0; }

/* The value at the fraction u of the way from min to max, on the scale of the parameter. */
static double between(const Trainyard__V1__SweepParameter *p, double min, double max, double u) {
    return is_log(p) ? exp(log(min) + u * (log(max) - log(min))) : min + u * (max - min);
}

static void write_number(const Trainyard__V1__SweepParameter *p, double value, char ret[32]) {
    if (p->integer) {
        snprintf(ret, 32, "%lld", (long long)clamp(value, p->min, p->max));
        return;
    }
    snprintf(ret, 32, "%.6g", value);
    const double written = strtod(ret, NULL);
    if (written != clamp(written, p->min, p->max))
        snprintf(ret, 32, "%.17g", clamp(value, p->min, p->max)); /* rounded past an end */
}

/* ---- grid ---- */

int64_t sweep_grid_values(const Trainyard__V1__SweepParameter *p) {
    return p->n_choices ? (int64_t)p->n_choices : p->_count_case ? p->count : 0;
}

void sweep_grid_number(const Trainyard__V1__SweepParameter *p, int64_t i, char ret[32]) {
    const double value = between(p, p->min, p->max, (double)i / (p->count - 1));
    const double end = i == 0 ? p->min : i == p->count - 1 ? p->max : value; /* the ends are exact */
    write_number(p, p->integer ? round(end) : end, ret);
}

static void draw_grid(const Trainyard__V1__SweepSpec *sweep, int trial, struct sweep_value *ret) {
    int64_t rest = trial - 1;
    for (size_t i = sweep->n_parameters; i-- > 0;) {
        const Trainyard__V1__SweepParameter *p = sweep->parameters[i]->value;
        const int64_t n = sweep_grid_values(p);
        assert(n > 0);
        const int64_t at = rest % n;
        rest /= n;
        if (!p->n_choices)
            sweep_grid_number(p, at, ret[i].number);
        ret[i].text = p->n_choices ? p->choices[at] : ret[i].number;
    }
}

/* ---- random ---- */

static void draw_one(const Trainyard__V1__SweepParameter *p, double u, struct sweep_value *ret) {
    if (p->n_choices) {
        ret->text = p->choices[(size_t)(u * (double)p->n_choices)];
        return;
    }
    write_number(p, p->integer ? floor(between(p, p->min, p->max + 1, u)) : between(p, p->min, p->max, u), ret->number);
    ret->text = ret->number;
}

static void draw_random(const Trainyard__V1__SweepSpec *sweep, int64_t seed, int trial, struct sweep_value *ret) {
    for (size_t i = 0; i < sweep->n_parameters; i++)
        draw_one(sweep->parameters[i]->value, uniform(seed, trial, ret[i].path), &ret[i]);
}

void sweep_draw(const Trainyard__V1__SweepSpec *sweep, int trial, struct sweep_value *ret) {
    for (size_t i = 0; i < sweep->n_parameters; i++)
        ret[i].path = sweep->parameters[i]->key;
    switch (sweep->search->kind_case) {
    case TRAINYARD__V1__SEARCH_SPEC__KIND_RANDOM: draw_random(sweep, sweep->search->random->seed, trial, ret); break;
    case TRAINYARD__V1__SEARCH_SPEC__KIND_ASHA: draw_random(sweep, sweep->search->asha->seed, trial, ret); break;
    default: draw_grid(sweep, trial, ret); break;
    }
}
