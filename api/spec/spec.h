/* Resolves job specs: fills in defaults and checks ranges and combinations.
 *
 *     struct spec_problems problems = { 0 };
 *     Trainyard__V1__JobSpec *spec = NULL;
 *     status_t st = spec_resolve(given, &spec, &problems, e);     // e: the first problem, and how many more
 *     ... problems.lines[i] ...
 *     spec_problems_done(&problems);
 *     spec = spec_free(spec);
 *
 * The client (validate, submit), the controller (CreateJob, ValidateJob) and the worker resolve a spec, each once: a
 * message may come from anywhere. Ranges and defaults of single fields are options in spec.proto. A resolved spec
 * resolves to itself.
 *
 * No I/O: the executor checks whether a file exists. Thread-safe. */
#ifndef API_SPEC_SPEC_H
#define API_SPEC_SPEC_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/spec.pb-c.h>

/* A spec with more problems lists the first 64. */
enum { SPEC_PROBLEMS = 64, SPEC_PROBLEM_BYTES = 640 };

struct spec_problems {
    char (*lines)[SPEC_PROBLEM_BYTES]; /* "model.gpt.heads: 5 does not divide width 128"; no full stop */
    size_t n;
};
void spec_problems_done(struct spec_problems *p);

/* A new spec with every default filled in; `given` is only read. problems may be NULL. On INVALID_ARGUMENT problems
 * holds every line that was found and e the first one. These fields stay unset: sizes that the data decides
 * (vocabulary, classes, image size), checkpoint.directory (the controller's own), and with `auto` micro_batch and lanes
 * (the plan's choice). */
MUST_CHECK status_t spec_resolve(const Trainyard__V1__JobSpec *given, Trainyard__V1__JobSpec **ret,
                                 struct spec_problems *problems, struct err *e);
/* A copy of any spec, resolved or not. */
MUST_CHECK status_t spec_copy(const Trainyard__V1__JobSpec *spec, Trainyard__V1__JobSpec **ret, struct err *e);
Trainyard__V1__JobSpec *spec_free(Trainyard__V1__JobSpec *spec); /* NULL is fine; returns NULL */
CLEANUP_DEFINE(Trainyard__V1__JobSpec *, spec_free)

/* Of a resolved spec. A program has no model, data and train. */
bool spec_is_program(const Trainyard__V1__JobSpec *spec);
/* 1 to 128 letters, digits and '_', the first no digit. */
bool spec_secret_name(const char *name);
int64_t spec_steps(const Trainyard__V1__JobSpec *spec); /* of a program 0: they are not known */
/* The ranks that the job needs, one slot each: data x pipeline; of an elastic program the fewest. The number of ranks
 * of an attempt is a property of the attempt (AttemptStart.world_size), and lies between the two. */
int32_t spec_world_size(const Trainyard__V1__JobSpec *spec);
int32_t spec_max_world_size(const Trainyard__V1__JobSpec *spec); /* the most; equal unless the program is elastic */
bool spec_stops_at_step(const Trainyard__V1__JobSpec *spec);     /* a program with `stop: step` */
/* Micro-batches of a step, over all ranks; 0 until the plan has chosen `micro_batch: auto`. */
int32_t spec_micro_batches(const Trainyard__V1__JobSpec *spec);
int64_t spec_tokens_per_step(const Trainyard__V1__JobSpec *spec); /* 0: the model reads no tokens */
/* Whether the plan has to choose the micro-batch or the recompute before the first step. */
bool spec_has_auto(const Trainyard__V1__JobSpec *spec);
/* Whether the job, as a fork, may have other data than its origin. */
bool spec_may_change_data(const Trainyard__V1__JobSpec *spec);

/* Whether the job's checkpoints go to a store: checkpoint.store. */
bool spec_checkpoints_in_store(const Trainyard__V1__JobSpec *spec);

/* "jobs/42/checkpoints/7", as train.init_from takes it; false and nothing written for any other text. */
bool spec_checkpoint_name(const char *name, int64_t *ret_job, int64_t *ret_checkpoint);

/* The path of a file:// URI: "file:///data/my%20text" -> "/data/my text". INVALID_ARGUMENT unless it is an absolute
 * local path (no host, query or fragment), in normal form (no "." or "..", no empty part, no slash at the end), without
 * NUL or control characters, of fewer than cap bytes. */
MUST_CHECK status_t spec_uri_path(const char *uri, char *ret, size_t cap, struct err *e);

/* The format of data.text that a file with this name (a path or a URI) has, in the words of the spec. Static. */
const char *spec_text_format(const char *name);

#endif
