/* A run that has a job gets the rest of its points. The points that the job has are read first, so that the files of
 * the run may be read in any order: several of them may have grown since. New rows are numbered behind those that the
 * job has. If the number of rows has changed while the points were read, another import is at work. */
#include "cli/import/run.h"

#include "base/alloc.h"
#include "cli/import/known.h"
#include "cli/output.h"
#include "cli/user_name.h"
#include "tracking/metric_name.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MAX (INT64_C(1) << 53)

struct import_run {
    struct cli *c;
    Trainyard__V1__ImportedRun *run;
    char *job;
    bool created;
    int64_t stored;  /* when the run was opened */
    int64_t next;    /* number of the next row */
    int64_t refused; /* points that no job can have */
    struct import_known *known;
    size_t n;
    Trainyard__V1__ImportedRow rows[IMPORT_ROWS], *pointers[IMPORT_ROWS];
    char names[IMPORT_ROWS][LIMIT_METRIC_NAME_BYTES + 1], *name[IMPORT_ROWS];
    double values[IMPORT_ROWS];
};

/* *ret_rows: of the job, after the call. */
static status_t send_rows(struct import_run *r, int64_t *ret_rows, struct err *e) {
    Trainyard__V1__ImportRunRequest request = TRAINYARD__V1__IMPORT_RUN_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.run = r->run;
    char user[USER_NAME_BYTES];
    user_name(user);
    request.user = user;
    request.first_row = r->next - (int64_t)r->n;
    request.rows = r->pointers;
    request.n_rows = r->n;
    TRY(client_call_again(r->c, &trainyard__v1__import_service__descriptor, "ImportRun", &request.base, &reply, e));
    const Trainyard__V1__ImportRunResponse *answer = (const Trainyard__V1__ImportRunResponse *)reply;
    if (!r->job) {
        r->job = alloc_copy_text(answer->job);
        r->created = answer->created;
    }
    *ret_rows = answer->rows;
    r->n = 0;
    return ST_OK;
}

static status_t known_read(struct import_run *r, struct err *e) {
    int64_t rows;
    TRY(import_known_read(r->c, r->job, &r->known, e));
    TRY(send_rows(r, &rows, e));
    return rows == r->stored ? ST_OK
                             : err_set(e, ST_ABORTED,
                                       "%s: another import is adding points to this run: import it again when that one "
                                       "has ended",
                                       r->job);
}

status_t import_run_open(struct cli *c, Trainyard__V1__ImportedRun *run, struct import_run **ret, struct err *e) {
    CLEANUP(import_run_freep) struct import_run *r = alloc_zeroed(1, sizeof *r);
    r->c = c;
    r->run = run;
    for (size_t i = 0; i < IMPORT_ROWS; i++) {
        trainyard__v1__imported_row__init(&r->rows[i]);
        r->pointers[i] = &r->rows[i];
        r->name[i] = r->names[i];
        r->rows[i].names = &r->name[i];
        r->rows[i].values = &r->values[i];
        r->rows[i].n_names = r->rows[i].n_values = 1;
    }
    TRY(send_rows(r, &r->stored, e));
    r->next = r->stored;
    if (r->stored > 0)
        TRY(known_read(r, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct import_run *import_run_free(struct import_run *r) {
    if (r) {
        r->known = import_known_free(r->known);
        free(r->job);
    }
    free(r);
    return NULL;
}

status_t import_run_add(struct import_run *r, int64_t step, int64_t time_us, const char *tag, double value,
                        struct err *e) {
    if (step < 0 || step > STEP_MAX || !*tag) {
        r->refused++;
        return ST_OK;
    }
    metric_name_make(tag, r->names[r->n]);
    if (import_known_take(r->known, r->names[r->n], step, value))
        return ST_OK;
    r->next++;
    r->rows[r->n].step = step;
    r->rows[r->n].time_us = time_us;
    r->values[r->n++] = value;
    return r->n < IMPORT_ROWS ? ST_OK : send_rows(r, &(int64_t){ 0 }, e);
}

static status_t print(const struct import_run *r, struct err *e) {
    const int64_t added = r->next - r->stored;
    if (r->c->output == OUTPUT_NAME) {
        printf("%s\n", r->job);
        return ST_OK;
    }
    Trainyard__V1__ImportRunResponse answer = TRAINYARD__V1__IMPORT_RUN_RESPONSE__INIT;
    answer.job = r->job;
    answer.rows = r->stored + added;
    answer.created = r->created;
    if (r->c->output == OUTPUT_JSON || r->c->output == OUTPUT_YAML)
        return output_json_line(&answer.base, e);
    if (r->created)
        printf("%s  %s: %" PRId64 " points\n", r->job, r->run->name, added);
    else if (added == 0)
        printf("%s  %s: nothing to add, the run was imported before\n", r->job, r->run->name);
    else
        printf("%s  %s: %" PRId64 " new points, the run was imported before\n", r->job, r->run->name, added);
    if (r->refused > 0)
        fprintf(stderr,
                "trainyard: %s: %" PRId64 " points are left out: their steps are below 0 or above 2^53, or they "
                "have no name\n",
                r->run->name, r->refused);
    return ST_OK;
}

status_t import_run_end(struct import_run *r, struct err *e) {
    if (r->n > 0)
        TRY(send_rows(r, &(int64_t){ 0 }, e));
    return print(r, e);
}

void import_run_name(const char *given, char ret[IMPORT_NAME_BYTES]) {
    size_t n = 0;
    for (const char *at = given; *at && n < IMPORT_NAME_BYTES - 1; at++) {
        const char c = (char)tolower((unsigned char)*at);
        if (isalnum((unsigned char)c) && (unsigned char)c < 128)
            ret[n++] = c;
        else if (n > 0 && ret[n - 1] != '-')
            ret[n++] = '-';
    }
    while (n > 0 && ret[n - 1] == '-')
        n--;
    ret[n] = '\0';
    if (n == 0)
        strcpy(ret, "run");
}

Google__Protobuf__Timestamp import_run_time(int64_t us) {
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    t.seconds = us / 1000000;
    t.nanos = (int32_t)(us % 1000000 * 1000);
    return t;
}
