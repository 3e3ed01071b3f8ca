#include "executor/worker/data_wait.h"

#include "api/spec/data_uri.h"
#include "api/spec/spec.h"

#include <stdio.h>
#include <string.h>

enum { TICK_MS = 500, FIELD_BYTES = 160 };

static void report_put(struct emitter *emitter, const Trainyard__V1__DataReport *report) {
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    if (*report->event) {
        notice.kind = report->event;
        notice.message = report->message;
        emitter_put(emitter, WORKER_RECORD(NOTICE, notice, &notice));
    }
    if (*report->message)
        emitter_log(emitter, "%s%s%s", report->event, *report->event ? ": " : "", report->message);
}

/* ---- a failure ---- */

static status_t last_take(const Trainyard__V1__JobSpec *spec, const Trainyard__V1__DataReport *report,
                          Trainyard__V1__WorkerEnd__Cause *ret_cause, struct err *e) {
    char field[FIELD_BYTES];
    if (report->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        return ST_OK;
    *ret_cause = report->cause;
    if (report->cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD) /* another host may get the right bytes */
        *ret_cause = TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE;
    if (*ret_cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE)
        return err_set(e, ST_UNAVAILABLE, "the checkpoint cannot be read: %s", report->message);
    if (strncmp(report->message, "checkpoint.store: ", 18) == 0 ||
        strncmp(report->message, "train.init_from: ", 17) == 0) /* trainyard-data knows the field */
        return err_set(e, ST_UNAVAILABLE, "%s", report->message);
    data_uri_field(spec, report->message, field, sizeof field);
    if (strcmp(field, "data") == 0 && spec_checkpoints_in_store(spec) &&
        strstr(report->message, spec->checkpoint->store))
        snprintf(field, sizeof field, "checkpoint.store");
    const bool prefixed = strncmp(report->message, "data: ", 6) == 0; /* the field is known better here */
    return err_set(e, ST_UNAVAILABLE, "%s: %s", field, report->message + (prefixed ? 6 : 0));
}

/* *ret_last: there are no more reports. */
static status_t report_take(const Trainyard__V1__JobSpec *spec, const Trainyard__V1__DataReport *report,
                            struct emitter *emitter, struct data_list *list, bool *ret_last,
                            Trainyard__V1__WorkerEnd__Cause *ret_cause, struct err *e) {
    *ret_cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
    TRY(data_list_add(list, report, e));
    *ret_last = report->last;
    if (report->last)
        return last_take(spec, report, ret_cause, e);
    report_put(emitter, report);
    return ST_OK;
}

status_t data_wait(const Trainyard__V1__JobSpec *spec, struct control *control, struct emitter *emitter,
                   struct data_list *list, Trainyard__V1__WorkerEnd__Cause *ret_cause, struct err *e) {
    emitter_log(emitter, "waiting until what the job reads from stores is on this host");
    for (bool last = false; !last;) {
        Trainyard__V1__WorkerCommand *command = NULL;
        *ret_cause = TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
        TRY(control_data(control, TICK_MS, &command, e));
        emitter_progress(emitter); /* this rank does not hang: trainyard-data judges whether copying stands still */
        if (!command)
            continue;
        status_t st = report_take(spec, command->data, emitter, list, &last, ret_cause, e);
        trainyard__v1__worker_command__free_unpacked(command, NULL);
        TRY(st);
    }
    return ST_OK;
}
