/* One run of a tracker on its way to the controller.
 *
 *     struct import_run *r;
 *     TRY(import_run_open(c, &header, &r, e));        // makes the job, or finds it
 *     TRY(import_run_add(r, step, time_us, tag, value, e)) for each point, in any order
 *     TRY(import_run_end(r, e));                         // sends the rest, and prints a line
 *
 * Points that the job has already are skipped (known.h). Two imports of one run at the same time store each point once
 * if both find the same points in the same order; if files grow meanwhile, points may be missing or be there twice.
 * Memory: IMPORT_ROWS points, and what known.h needs for the points that the job has. */
#ifndef CLI_IMPORT_RUN_H
#define CLI_IMPORT_RUN_H

#include "cli/client.h"

#include <trainyard/v1/import.pb-c.h>

enum { IMPORT_ROWS = 8000, IMPORT_NAME_BYTES = 64 };

struct import_run;
/* run: borrowed until import_run_free. ABORTED: another import is adding points to the job. */
MUST_CHECK status_t import_run_open(struct cli *c, Trainyard__V1__ImportedRun *run, struct import_run **ret,
                                    struct err *e);
struct import_run *import_run_free(struct import_run *r);
CLEANUP_DEFINE(struct import_run *, import_run_free)

/* A point with a step that no job can have is left out, and counted. */
MUST_CHECK status_t import_run_add(struct import_run *r, int64_t step, int64_t time_us, const char *tag, double value,
                                   struct err *e);
MUST_CHECK status_t import_run_end(struct import_run *r, struct err *e);

/* The name of a job for a run: characters that a job's name cannot have become '-', and it is cut. */
void import_run_name(const char *given, char ret[IMPORT_NAME_BYTES]);

/* us since 1970. */
Google__Protobuf__Timestamp import_run_time(int64_t us);

#endif
