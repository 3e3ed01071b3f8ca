#include "api/spec/rules.h"

#include "base/utf8.h"

#include <string.h>

enum { LABEL_BYTES_MAX = 255 };

/* A label's key is a name too; its value may be any line of text. */
static void check_label(const Trainyard__V1__JobSpec__LabelsEntry *label, struct spec_problems *p) {
    if (!check_name(p, "labels", label->key))
        return;
    size_t n = strlen(label->value);
    if (n > LABEL_BYTES_MAX)
        problem_add(p, "labels.%s: %zu bytes are more than %d", label->key, n, LABEL_BYTES_MAX);
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
    for (size_t i = 0; i < spec->n_labels; i++) {
        check_label(spec->labels[i], p);
        for (size_t j = 0; j < i; j++) /* a map on the wire may repeat a key */
            if (strcmp(spec->labels[i]->key, spec->labels[j]->key) == 0)
                problem_add(p, "labels.%s: given twice", spec->labels[i]->key);
    }
}

void rules_check(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    rules_fields(&spec->base, "", p);
    if (rules_field_good(&spec->base, "labels"))
        check_labels(spec, p);
    if (spec->stores)
        rules_stores(spec, p);
    rules_checkpoint_store(spec, p);
    if (spec->program) {
        rules_program(spec, p);
        return;
    }
    rules_train(spec->train, p);
    rules_layout(spec, rules_batches(spec->train, p), p);
    rules_data(spec, p);
    rules_unencrypted(spec, p);
    rules_model(spec, p);
}
