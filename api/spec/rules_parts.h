/* The files of rules, and the ceilings that more than one of them needs. Internal to this folder. */
#ifndef API_SPEC_RULES_PARTS_H
#define API_SPEC_RULES_PARTS_H

#include "api/spec/problems.h"

/* Ceilings that keep products of sizes inside 64 bits and catch slips of the keyboard; nothing trains near them. */
#define SPEC_MOST_STEPS INT64_C(1000000000000)
enum {
    SPEC_MOST_LAYERS = 1024,
    SPEC_MOST_HEADS = 1024,
    SPEC_MOST_WIDTH = 1 << 17,
    SPEC_MOST_CONTEXT = 1 << 20,
    SPEC_MOST_VOCABULARY = 1 << 24,
    SPEC_MOST_CLASSES = 1 << 20,
    SPEC_MOST_PIXELS = 1 << 13,
    SPEC_MOST_BATCH = 1 << 20,
};

/* rules_model.c: of the family that was chosen. */
void rules_model(const Trainyard__V1__ModelSpec *model, struct spec_problems *p);
/* rules_data.c */
void rules_data(const Trainyard__V1__DataSpec *data, struct spec_problems *p);
void rules_file(const char *uri, const char *path, struct spec_problems *p);
/* Whether there is something to evaluate on; false where the source is wrong. */
bool rules_has_validation(const Trainyard__V1__DataSpec *data);
/* rules_train.c: everything in `train` that no other part decides. */
void rules_train(const Trainyard__V1__TrainSpec *t, struct spec_problems *p);
/* Returns whether train.lanes is known and right. */
bool rules_batches(const Trainyard__V1__TrainSpec *t, struct spec_problems *p);
/* rules_optimizer.c: ranges of the optimizer and of the schedule that drives it. */
void rules_optimizer(const Trainyard__V1__TrainSpec *t, struct spec_problems *p);
/* rules_across.c: what two or more parts must agree on. lanes: 0 where they are not known. */
void rules_across(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
void rules_parallel(const Trainyard__V1__JobSpec *spec, int32_t lanes, struct spec_problems *p);

#endif
