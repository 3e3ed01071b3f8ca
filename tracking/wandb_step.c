#include "tracking/wandb_step.h"

#include "tracking/json.h"

#include <stdio.h>

enum { DEPTH_MAX = 4, NAME_BYTES = 256 };

struct taker {
    wandb_point_add *add;
    void *ctx;
    int64_t step, *others;
};

static void object_take(const struct taker *t, const char *parent, json_t *object, int depth) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char name[NAME_BYTES];
        double number;
        if (*key == '_')
            continue;
        snprintf(name, sizeof name, "%s%s%s", parent, *parent ? "." : "", key);
        if (json_double(value, &number))
            t->add(t->ctx, t->step, name, number);
        else if (json_is_object(value) && !json_object_get(value, "_type") && depth < DEPTH_MAX)
            object_take(t, name, value, depth + 1);
        else if (!json_is_null(value))
            ++*t->others;
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

bool wandb_step_points(json_t *object, wandb_point_add *add, void *ctx, int64_t *ret_others) {
    const struct taker t = { add, ctx, step_of(object), ret_others };
    if (!json_is_object(object) || t.step < 0)
        return false;
    object_take(&t, "", object, 0);
    return true;
}
