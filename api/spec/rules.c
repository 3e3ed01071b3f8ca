#include "api/spec/rules.h"

#include "api/spec/rules_parts.h"
#include "base/utf8.h"

#include <string.h>

enum { MOST_KEPT = 1000, MOST_RESTARTS = 1000, MOST_PRIORITY = 1000000, MOST_LABELS = 64, MOST_LABEL_BYTES = 255 };

static void check_checkpoint(const Trainyard__V1__CheckpointSpec *c, struct spec_problems *p) {
    check_int(p, "checkpoint.every", c->every, 0, SPEC_MOST_STEPS);
    check_int(p, "checkpoint.keep_last", c->keep_last, 1, MOST_KEPT);
    check_int(p, "checkpoint.keep_best", c->keep_best, 0, MOST_KEPT);
    if (*c->directory)
        rules_file(c->directory, "checkpoint.directory", p);
}

/* A label's key is a name too; its value may be any line of text. */
static void check_label(const Trainyard__V1__JobSpec__LabelsEntry *label, struct spec_problems *p) {
    if (!check_name(p, "labels", label->key))
        return;
    size_t n = strlen(label->value);
    if (n > MOST_LABEL_BYTES)
        problem_add(p, "labels.%s: %zu bytes are more than %d", label->key, n, MOST_LABEL_BYTES);
    else if (!utf8_valid(label->value, n))
        problem_add(p, "labels.%s: is not UTF-8", label->key);
    else
        for (size_t i = 0; i < n; i++)
            if ((uint8_t)label->value[i] < 0x20 || label->value[i] == 0x7f) {
                problem_add(p, "labels.%s: has a control character", label->key);
                return;
            }
}

static void check_labels(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (spec->n_labels > MOST_LABELS) {
        problem_add(p, "labels: %zu labels are more than %d", spec->n_labels, MOST_LABELS);
        return;
    }
    for (size_t i = 0; i < spec->n_labels; i++) {
        check_label(spec->labels[i], p);
        for (size_t j = 0; j < i; j++) /* a map on the wire may repeat a key */
            if (strcmp(spec->labels[i]->key, spec->labels[j]->key) == 0)
                problem_add(p, "labels.%s: given twice", spec->labels[i]->key);
    }
}

void rules_check(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    static const char *const accelerators[] = { "cpu", "cuda", NULL };
    check_name(p, "name", spec->name);
    rules_model(spec->model, p);
    rules_data(spec->data, p);
    rules_train(spec->train, p);
    bool lanes = rules_batches(spec->train, p);
    rules_parallel(spec, lanes ? spec->train->lanes : 0, p);
    check_checkpoint(spec->checkpoint, p);
    check_choice(p, "resources.accelerator", spec->resources->accelerator, accelerators);
    check_int(p, "retry.max_restarts", spec->retry->max_restarts, 0, MOST_RESTARTS);
    check_name(p, "queue", spec->queue);
    check_int(p, "priority", spec->priority, -MOST_PRIORITY, MOST_PRIORITY);
    check_labels(spec, p);
    rules_across(spec, p);
}
