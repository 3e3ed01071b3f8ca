#include "executor/program/tracking/wandb_history.h"

#include "executor/program/tracking/hash.h"
#include "tracking/json.h"
#include "tracking/wandb_step.h"

struct line {
    struct points *points;
    const struct run *run;
};

static void point_take(void *ctx, int64_t step, const char *name, double value) {
    const struct line *line = ctx;
    points_add(line->points, line->run->prefix, name, step, value);
}

static void line_take(const char *text, size_t n, struct run *run, struct points *points, int64_t *ret_others) {
    json_t *object = json_parse(text, n);
    struct line line = { points, run };
    run->step = json_int(json_object_get(object, "_step"), run->step);
    if (!wandb_step_points(object, point_take, &line, ret_others))
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
