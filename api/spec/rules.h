/* What a spec with all defaults must satisfy: the option of each field, then rules that compare fields. Internal to
 * this folder. */
#ifndef API_SPEC_RULES_H
#define API_SPEC_RULES_H

#include "api/spec/problems.h"

/* Adds a line for each problem. Fields are compared only when each of them is right by itself, so that one mistake
 * gives one line. */
void rules_check(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);

/* rules_fields.c: checks every field below msg by its option; path is msg's own, "" for a whole spec. */
void rules_fields(const ProtobufCMessage *msg, const char *path, struct spec_problems *p);
/* Whether a field, by its name in msg, satisfies its option. Without a line. */
bool rules_field_good(const ProtobufCMessage *msg, const char *name);
/* A file:// URI of this folder's form: adds a line for any other. */
bool rules_file(const char *uri, const char *path, struct spec_problems *p);

/* Text of format ARGUMENT: adds a line for any other. */
bool rules_argument(const char *value, const char *path, struct spec_problems *p);

/* rules_model.c: the model's sizes, and the data that the model can read. */
void rules_model(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
/* rules_data.c */
void rules_data(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
/* rules_mixture.c: of a mixture, whose sources are sorted by name. */
void rules_mixture(const Trainyard__V1__MixtureData *m, struct spec_problems *p);
/* rules_stores.c: how hosts reach data that are no files of theirs. */
void rules_stores(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
void rules_checkpoint_store(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
/* The same file: URIs of http://, of a spec with or without stores. */
void rules_unencrypted(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
/* rules_train.c: batches, optimizer, schedule, profile. */
void rules_train(const Trainyard__V1__TrainSpec *t, struct spec_problems *p);
/* Whether global_batch, micro_batch and lanes are known and agree; adds a line if they do not agree. */
bool rules_batches(const Trainyard__V1__TrainSpec *t, struct spec_problems *p);
/* rules_program.c: of a spec with a program. */
void rules_program(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);
/* rules_layout.c: ranks, stages, ZeRO, NCCL, memory. lanes_known: rules_batches' result. */
void rules_layout(const Trainyard__V1__JobSpec *spec, bool lanes_known, struct spec_problems *p);

#endif
