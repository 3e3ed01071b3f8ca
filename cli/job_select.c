/* A command for several jobs either names them or selects them.
 *
 * The selector becomes a request of ListJobs. The command reads all pages before it changes the first job, because a
 * change may move a job out of the selection. Jobs in states for which the command is impossible are left out. A
 * command that cannot be undone then says how many jobs it has found, and asks on the terminal. Each job is one call:
 * a failure is reported and does not keep the others from being changed. */
#include "cli/job_select.h"

#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/time_option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

/* ---- the selector ---- */

static status_t parse_state(const char *text, Trainyard__V1__Job__State *ret, struct err *e) {
    const ProtobufCEnumDescriptor *states = &trainyard__v1__job__state__descriptor;
    char known[200] = "";
    for (unsigned i = 0, used = 0; i < states->n_values; i++) {
        const ProtobufCEnumValue *v = &states->values[i];
        if (v->value == 0)
            continue;
        if (strcasecmp(v->name, text) == 0) {
            *ret = (Trainyard__V1__Job__State)v->value;
            return ST_OK;
        }
        if (used < sizeof known)
            used += (unsigned)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", v->name);
    }
    return err_set(e, ST_INVALID_ARGUMENT, "--state: '%.40s' is not a state; states are %s", text, known);
}

status_t job_selector_request(const struct job_selector *s, struct job_selector_times *times,
                              Trainyard__V1__ListJobsRequest *ret, struct err *e) {
    trainyard__v1__list_jobs_request__init(ret);
    if (s->state)
        TRY(parse_state(s->state, &ret->state, e));
    if (s->since) {
        TRY(time_option_read("since", s->since, &times->since, e));
        ret->created_after = &times->since;
    }
    if (s->before) {
        TRY(time_option_read("before", s->before, &times->before, e));
        ret->created_before = &times->before;
    }
    ret->queue = s->queue ? (char *)s->queue : ret->queue;
    ret->display_name = s->name ? (char *)s->name : ret->display_name;
    ret->user = s->user ? (char *)s->user : ret->user;
    ret->labels = (char **)(uintptr_t)s->labels.items;
    ret->n_labels = s->labels.n;
    return ST_OK;
}

static bool selects(const struct job_selector *s) {
    return s->state || s->queue || s->name || s->user || s->since || s->before || s->labels.n;
}

/* ---- several jobs ---- */

/* What has happened to the jobs until now. */
struct outcome {
    const struct job_action *action;
    const void *args;
    struct progress progress;
    size_t done, failed;
    status_t first; /* failure */
    struct err why; /* of the last failure */
};

static const char *ending(size_t n) { return n == 1 ? "" : "s"; }

static void add_failure(struct outcome *o, status_t st, const struct err *why, bool quiet) {
    if (!quiet) {
        progress_clear(&o->progress);
        fprintf(stderr, "trainyard: %s\n", why->msg);
    }
    if (!o->failed++)
        o->first = st;
    o->why = *why;
}

static void act_on(struct cli *c, struct outcome *o, const char *name, bool quiet) {
    struct err e = { "" };
    status_t st = o->action->act(c, o->args, name, &e);
    o->done += st == ST_OK;
    if (st != ST_OK)
        add_failure(o, st, &e, quiet);
}

static status_t outcome_status(const struct outcome *o, bool one, struct err *e) {
    if (o->failed == 0)
        return ST_OK;
    return one ? err_set(e, o->first, "%s", o->why.msg)
               : err_set(e, o->first, "%zu of %zu jobs could not be %s", o->failed, o->failed + o->done,
                         o->action->past);
}

static status_t each_word(struct cli *c, char *const words[], struct outcome *o, struct err *e) {
    const bool one = !words[1];
    for (size_t i = 0; words[i]; i++) {
        char name[JOB_NAME_BYTES];
        struct err why = { "" };
        status_t st = job_name_find(c, words[i], name, &why);
        if (st == ST_OK)
            act_on(c, o, name, one);
        else
            add_failure(o, st, &why, one);
    }
    return outcome_status(o, one, e);
}

/* Moves the jobs that the command can change to the front of the list. Returns their number. */
static size_t keep_possible(Trainyard__V1__ListJobsResponse *found, const struct job_action *action) {
    size_t n = 0;
    for (size_t i = 0; i < found->n_jobs; i++) {
        Trainyard__V1__Job *job = found->jobs[i];
        if (!action->may(job->state))
            continue;
        found->jobs[i] = found->jobs[n];
        found->jobs[n++] = job;
    }
    return n;
}

static void print_selected(const Trainyard__V1__ListJobsResponse *found, size_t n) {
    enum { SHOWN = 10 };
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        fprintf(stderr, "  %s  %s  ", output_id(found->jobs[i]->name),
                output_enum(&trainyard__v1__job__state__descriptor, (int)found->jobs[i]->state));
        output_text(stderr, found->jobs[i]->display_name);
        fputc('\n', stderr);
    }
    if (n > SHOWN)
        fprintf(stderr, "  and %zu more\n", n - SHOWN);
}

static status_t confirm(const struct job_action *action, const Trainyard__V1__ListJobsResponse *found, size_t n,
                        struct err *e) {
    char answer[16] = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: the options select %zu job%s; add --yes to %s %s", action->verb, n,
                       ending(n), action->verb, n == 1 ? "it" : "them");
    print_selected(found, n);
    fprintf(stderr, "%s %zu job%s? [y/N] ", action->verb, n, ending(n));
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin))
        fputc('\n', stderr);
    return strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0
               ? ST_OK
               : err_set(e, ST_CANCELLED, "no job was %s", action->past);
}

static void report_none(size_t n_selected, const char *past) {
    if (n_selected == 0)
        fprintf(stderr, "no job is selected\n");
    else
        fprintf(stderr, "none of the %zu selected job%s can be %s now\n", n_selected, ending(n_selected), past);
}

static status_t each_selected(struct cli *c, const struct job_selector *selector, bool yes, struct outcome *o,
                              struct err *e) {
    Trainyard__V1__ListJobsRequest request;
    struct job_selector_times times;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(job_selector_request(selector, &times, &request, e));
    TRY(client_list(c, jobs, "ListJobs", &request.base, CLIENT_ALL, &reply, e));
    Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)reply;
    const size_t n = keep_possible(found, o->action);
    if (n == 0)
        report_none(found->n_jobs, o->action->past);
    if (n > 0 && o->action->asks && !yes)
        TRY(confirm(o->action, found, n, e));
    for (size_t i = 0; i < n; i++) {
        act_on(c, o, found->jobs[i]->name, false);
        progress_draw(&o->progress, o->action->verb, i + 1, n, "");
    }
    progress_clear(&o->progress);
    if (n > 0 && o->failed == 0)
        fprintf(stderr, "%zu of %zu selected job%s %s %s\n", n, found->n_jobs, ending(found->n_jobs),
                found->n_jobs == 1 ? "was" : "were", o->action->past);
    return outcome_status(o, false, e);
}

status_t job_select_each(struct cli *c, char *const words[], const struct job_selector *selector, bool yes,
                         const struct job_action *action, const void *args, struct err *e) {
    struct outcome o = { .action = action, .args = args };
    if ((words[0] != NULL) == selects(selector))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: name jobs, or select them with options, %s", action->verb,
                       words[0] ? "not both" : "for example -l team=research");
    progress_init(&o.progress);
    return words[0] ? each_word(c, words, &o, e) : each_selected(c, selector, yes, &o, e);
}
