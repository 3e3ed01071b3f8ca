/* The part of Weights & Biases' API that a program's client uses to log.
 *
 * Numbers of the history become points; a member of an object is named "object.member". The configuration becomes
 * events. Files of the run, such as images and tables, are kept (artifacts.h). Versioned artifacts are accepted, and
 * reported by events, but not kept: no call of the client fails in the user's code. The client's own measurements of
 * the host and its copy of the output are dropped. A piece of the history that the client sends again is recognised by
 * its offset.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_WANDB_H
#define EXECUTOR_PROGRAM_TRACKING_WANDB_H

#include "executor/program/tracking/http_server.h"
#include "executor/program/tracking/notes.h"
#include "executor/program/tracking/runs.h"

enum { WANDB_PARAMETERS = 512 };

struct wandb {
    struct points *points;
    const char *url, *token; /* of the server: where the client sends files to */
    struct runs runs;
    struct notes parameters;
    uint64_t known[WANDB_PARAMETERS]; /* hashes of the parameters that were reported */
    int n_known;
    int64_t others; /* values of the history that are no numbers: media, tables, texts */
};

/* url and token stay valid. */
void wandb_init(struct wandb *w, struct points *points, const char *url, const char *token);
bool wandb_has(const char *path);
unsigned wandb_serve(struct wandb *w, const struct http_request *request, struct bytes *ret);
/* The name of the file that a PUT of this path uploads. False: it uploads none that is kept. */
bool wandb_upload(struct wandb *w, const char *path, char *ret, size_t n);
void wandb_flush(struct wandb *w); /* sends collected parameters */
void wandb_end(struct wandb *w);   /* reports what was counted */

#endif
