/* The part of MLflow's REST API that a program's client uses to log.
 *
 * Metrics become points. Parameters and tags become events. Files, also those of models, are kept (artifacts.h), and
 * can be listed and read. Models' entries, datasets and traces are accepted, and reported by an event, but not kept: no
 * call of the client fails in the user's code. There is one experiment; each of its names is accepted. A metric without
 * a step (the client sends step 0) gets the next number, as long as the metric has had no other step. A client repeats
 * a request whose answer it did not get on another connection: one with the same bytes is answered and not stored
 * again.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_MLFLOW_H
#define EXECUTOR_PROGRAM_TRACKING_MLFLOW_H

#include "executor/program/tracking/artifacts.h"
#include "executor/program/tracking/http_server.h"
#include "executor/program/tracking/notes.h"
#include "executor/program/tracking/runs.h"

#define MLFLOW_RUN "run-1" /* the first run, and that of a request without a run */

enum { MLFLOW_REQUESTS = 16 }; /* whose repetition is found */

struct mlflow {
    struct points *points;
    struct artifacts *artifacts; /* for lists and reading; NULL: none */
    struct runs runs;
    struct notes parameters, tags;
    struct mlflow_request {
        uint64_t hash, client;
        struct run *run; /* that it created; NULL: none */
    } requests[MLFLOW_REQUESTS];
    unsigned n_requests;
    int models; /* that were created */
};

void mlflow_init(struct mlflow *m, struct points *points);
/* Whether the path belongs to this API. */
bool mlflow_has(const char *path);
unsigned mlflow_serve(struct mlflow *m, const struct http_request *request, struct bytes *ret);
/* The name of the file that a PUT of this path uploads. False: it uploads none. */
bool mlflow_upload(struct mlflow *m, const char *path, char *ret, size_t n);
/* Sends collected parameters and tags. */
void mlflow_flush(struct mlflow *m);

#endif
