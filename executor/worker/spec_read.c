#include "executor/worker/spec_read.h"

#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "base/cores.h"
#include "base/limits.h"
#include "engine/checkpoint/reader.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

bool spec_changes_add(struct spec_changes *c, const char *change) {
    if (c->n == SPEC_CHANGES_MAX)
        return false;
    c->items[c->n++] = change;
    return true;
}

static status_t resolve(const Trainyard__V1__JobSpec *given, Trainyard__V1__JobSpec **ret, struct err *e) {
    struct spec_problems problems = { 0 };
    status_t st = spec_resolve(given, ret, &problems, e);
    for (size_t i = 1; i < problems.n; i++)
        fprintf(stderr, "trainyard-train: %s\n", problems.lines[i]);
    spec_problems_done(&problems);
    return st;
}

/* Another release may have had another default. The engine reports what is wrong with the checkpoint. */
static void keep_cut(Trainyard__V1__TrainSpec *t, const char *resume) {
    CLEANUP(freep) char *layout = NULL;
    if (!t || t->_micro_batch_case || t->micro_batch_auto ||
        checkpoint_layout(NULL, resume, &layout, NULL, NULL) != ST_OK)
        return;
    json_t *root = json_loads(layout, 0, NULL);
    const json_int_t micro_batch = json_integer_value(json_object_get(root, "micro_batch"));
    const json_int_t lanes = t->_lanes_case ? t->lanes : json_integer_value(json_object_get(root, "lanes"));
    json_decref(root);
    if (micro_batch < 1 || micro_batch > t->global_batch || lanes < 1 || lanes > LIMIT_WORLD_SIZE ||
        t->global_batch % (micro_batch * lanes) != 0)
        return;
    t->micro_batch = (int32_t)micro_batch;
    t->_micro_batch_case = TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH_MICRO_BATCH;
    t->lanes = (int32_t)lanes;
    t->_lanes_case = TRAINYARD__V1__TRAIN_SPEC___LANES_LANES;
}

status_t spec_read_resumed(const char *file, const struct spec_changes *changes, const char *resume,
                           Trainyard__V1__JobSpec **ret, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
    TRY(spec_file_read(file, &given, e));
    TRY(spec_change(given, changes->items, (size_t)changes->n, e));
    if (resume)
        keep_cut(given->train, resume);
    return resolve(given, ret, e);
}

status_t spec_read(const char *file, const struct spec_changes *changes, Trainyard__V1__JobSpec **ret, struct err *e) {
    return spec_read_resumed(file, changes, NULL, ret, e);
}

int spec_threads(const Trainyard__V1__JobSpec *spec, int ranks) {
    const int share = cores_per_rank(cores_allowed(), ranks), wanted = spec->resources->cores;
    return wanted > 0 && wanted < share ? wanted : share;
}
