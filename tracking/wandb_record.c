#include "tracking/wandb_record.h"

#include "tracking/json.h"
#include "tracking/wandb_step.h"

#include <math.h>
#include <string.h>
#include <wandb/record.pb-c.h>

enum { DEPTH_MAX = 16 };

/* Values are JSON as Python writes it: NaN, Infinity and -Infinity are no JSON, and become texts here. NULL: none. */
static json_t *value_parse(const char *text) {
    static const char *const names[] = { "NaN", "Infinity", "-Infinity" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return json_string(text);
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
}

/* Puts a value below the keys that lead to it. Items below more than DEPTH_MAX keys, and keys that are no UTF-8, are
 * left out. */
static void item_put(json_t *object, const Wandb__Item *item) {
    const bool nested = item->n_nested_key > 0;
    const size_t depth = nested ? item->n_nested_key : 1;
    if (depth > DEPTH_MAX)
        return;
    for (size_t i = 0; i + 1 < depth; i++) {
        json_t *inner = json_object_get(object, item->nested_key[i]);
        if (!json_is_object(inner)) {
            inner = json_object();
            if (json_object_set_new(object, item->nested_key[i], inner) < 0)
                return;
        }
        object = inner;
    }
    json_t *value = value_parse(item->value_json);
    json_object_set_new(object, nested ? item->nested_key[depth - 1] : item->key, value ? value : json_null());
}

struct points {
    const struct wandb_taker *t;
    int64_t time_us;
};

static void point_take(void *ctx, int64_t step, const char *name, double value) {
    const struct points *p = ctx;
    p->t->point(p->t->ctx, step, p->time_us, name, value);
}

static void history_take(const Wandb__HistoryRecord *history, const struct wandb_taker *t, int64_t *ret_others) {
    json_t *object = json_object();
    double seconds = 0;
    for (size_t i = 0; i < history->n_item; i++)
        item_put(object, history->item[i]);
    if (history->step && !json_object_get(object, "_step"))
        json_object_set_new(object, "_step", json_integer(history->step->num));
    struct points points = { t, 0 };
    if (json_double(json_object_get(object, "_timestamp"), &seconds) && seconds > 0 && seconds < 253402300800.0)
        points.time_us = (int64_t)llround(seconds * 1e6);
    if (!wandb_step_points(object, point_take, &points, ret_others))
        ++*ret_others;
    json_decref(object);
}

static void config_take(const Wandb__ConfigRecord *config, const struct wandb_taker *t) {
    for (size_t i = 0; config && i < config->n_update; i++) {
        const Wandb__Item *item = config->update[i];
        const char *name = item->n_nested_key > 0 ? item->nested_key[item->n_nested_key - 1] : item->key;
        if (*name != '_') /* the client's own */
            t->parameter(t->ctx, name, item->value_json);
    }
}

static void run_take(const Wandb__RunRecord *given, const struct wandb_taker *t) {
    struct wandb_run run = { given->run_id, given->project, given->display_name, given->notes, 0 };
    if (given->start_time && given->start_time->seconds > 0 && given->start_time->seconds < INT64_C(253402300800))
        run.start_us = given->start_time->seconds * 1000000 + given->start_time->nanos / 1000;
    t->run(t->ctx, &run);
    config_take(given->config, t);
    for (size_t i = 0; i < given->n_tags; i++)
        t->tag(t->ctx, given->tags[i], "");
}

bool wandb_record_take(const uint8_t *data, size_t n, const struct wandb_taker *t, int64_t *ret_others) {
    Wandb__Record *record = wandb__record__unpack(NULL, n, data);
    if (!record)
        return false;
    if (record->run)
        run_take(record->run, t);
    if (record->config)
        config_take(record->config, t);
    if (record->history)
        history_take(record->history, t, ret_others);
    if (record->exit)
        t->exit(t->ctx, record->exit->exit_code);
    wandb__record__free_unpacked(record, NULL);
    return true;
}
