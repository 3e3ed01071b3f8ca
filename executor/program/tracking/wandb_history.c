#include "executor/program/tracking/wandb_history.h"

#include "executor/program/tracking/hash.h"
#include "executor/program/tracking/json.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 4, NAME_BYTES = 256 };

struct line {
    struct points *points;
    const struct run *run;
    int64_t step, *others;
};

/* Names that begin with '_' are the client's: _step, _timestamp, _runtime, _wandb. */
static void object_take(const struct line *line, const char *parent, json_t *object, int depth) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char name[NAME_BYTES];
        double number;
        if (*key == '_')
            continue;
        snprintf(name, sizeof name, "%s%s%s", parent, *parent ? "." : "", key);
        if (json_double(value, &number))
            points_add(line->points, line->run->prefix, name, line->step, number);
        else if (json_is_object(value) && !json_object_get(value, "_type") && depth < DEPTH_MAX)
            object_take(line, name, value, depth + 1);
        else if (!json_is_null(value))
            ++*line->others;
    }
}

/* The client counts its calls of log() as _step. Hugging Face's Trainer and Lightning log the step of the training
 * beside each value. */
static int64_t step_of(const json_t *object) {
    static const char *const names[] = { "train/global_step", "trainer/global_step", "_step" };
    int64_t step = -1;
    for (size_t i = 0; step < 0 && i < sizeof names / sizeof *names; i++)
        step = json_int(json_object_get(object, names[i]), -1);
    return step;
}

static void line_take(const char *text, size_t n, struct run *run, struct points *points, int64_t *ret_others) {
    json_t *object = json_parse(text, n);
    const int64_t step = step_of(object);
    const struct line line = { points, run, step, ret_others };
    run->step = json_int(json_object_get(object, "_step"), run->step);
    if (json_is_object(object) && step >= 0)
        object_take(&line, "", object, 0);
    else
        points_event(points, "metric_refused", "a line of a W&B run's history is no object with a step");
    json_decref(object);
}

/* A program that begins a run again without resuming it sends line 0 again, with another time in it. */
static void session_find(struct run *run, int64_t offset, const json_t *content) {
    const json_t *line = json_array_get(content, 0);
    if (offset != 0 || !json_is_string(line))
        return;
    const uint64_t first = hash_bytes(HASH_BEGIN, json_string_value(line), json_string_length(line));
    if (first != run->first)
        run->lines = 0;
    run->first = first;
}

bool wandb_history(const char *body, size_t n, struct run *run, struct points *points, int64_t *ret_others) {
    json_t *all = json_parse(body, n);
    const json_t *history = json_object_get(json_object_get(all, "files"), "wandb-history.jsonl");
    const json_t *content = json_object_get(history, "content");
    int64_t at = json_int(json_object_get(history, "offset"), run->lines);
    const bool whole = json_is_object(all);
    size_t i;
    json_t *line;
    if (at < 0 || at > POINTS_STEP_MAX)
        at = run->lines;
    session_find(run, at, content);
    json_array_foreach(content, i, line) {
        if (at++ < run->lines && !run->shared)
            continue;
        if (json_is_string(line))
            line_take(json_string_value(line), json_string_length(line), run, points, ret_others);
        run->lines = at;
    }
    json_decref(all);
    return whole;
}
