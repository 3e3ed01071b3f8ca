#include "cli/job_name.h"

#include "base/alloc.h"
#include "cli/client.h"
#include "cli/output.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static bool is_number(const char *word) {
    while (isdigit((unsigned char)*word))
        word++;
    return *word == '\0';
}

/* An older controller ignores the name in the request: the jobs of its answer then have other names. */
static status_t newest_named(struct cli *c, const char *word, char ret[JOB_NAME_BYTES], struct err *e) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.display_name = (char *)(uintptr_t)word;
    request.page_size = 2;
    TRY(client_call(c, jobs, "ListJobs", &request.base, &reply, e));
    const Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)reply;
    if (found->n_jobs == 0 || strcmp(found->jobs[0]->display_name, word) != 0)
        return err_set(e, ST_NOT_FOUND,
                       "no job is named '%.64s': give the name or the number that 'trainyard list' shows", word);
    snprintf(ret, JOB_NAME_BYTES, "%s", found->jobs[0]->name);
    if (found->n_jobs > 1)
        fprintf(stderr, "job %s is the newest of the jobs named %s\n", output_id(ret), word);
    return ST_OK;
}

status_t job_name_find(struct cli *c, const char *word, char ret[JOB_NAME_BYTES], struct err *e) {
    if (*word == '\0')
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'' is not a job: give the name or the number that 'trainyard list' shows");
    if (!is_number(word) && !strchr(word, '/'))
        return newest_named(c, word, ret, e);
    int n = snprintf(ret, JOB_NAME_BYTES, "%s%s", strchr(word, '/') ? "" : "jobs/", word);
    return n < JOB_NAME_BYTES
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT,
                         "'%.40s' is not a job: give the name or the number that 'trainyard list' shows", word);
}

/* What has happened to the jobs until now. */
struct outcome {
    int done, failed;
    status_t first; /* failure */
    struct err why; /* of the last failure */
};

static void act_on(struct cli *c, job_act_fn *act, const void *args, const char *name, bool one, struct outcome *ret) {
    struct err e = { "" };
    status_t st = act(c, args, name, &e);
    ret->done += st == ST_OK;
    if (st == ST_OK)
        return;
    if (!one)
        fprintf(stderr, "trainyard: %s\n", e.msg);
    if (!ret->failed++)
        ret->first = st;
    ret->why = e;
}

static status_t outcome_status(const struct outcome *o, bool one, const char *verb, struct err *e) {
    if (o->failed == 0)
        return ST_OK;
    return one ? err_set(e, o->first, "%s", o->why.msg)
               : err_set(e, o->first, "%d of %d jobs could not be %s", o->failed, o->failed + o->done, verb);
}

static status_t each_word(struct cli *c, char *const words[], const char *verb, job_act_fn *act, const void *args,
                          struct err *e) {
    struct outcome o = { 0 };
    const bool one = !words[1];
    for (size_t i = 0; words[i]; i++) {
        char name[JOB_NAME_BYTES];
        struct err why = { "" };
        status_t st = job_name_find(c, words[i], name, &why);
        if (st == ST_OK) {
            act_on(c, act, args, name, one, &o);
            continue;
        }
        if (one)
            return err_set(e, st, "%s", why.msg);
        fprintf(stderr, "trainyard: %s\n", why.msg);
        o.first = o.failed++ ? o.first : st;
    }
    return outcome_status(&o, one, verb, e);
}

static status_t each_labelled(struct cli *c, const struct text_list *labels,
                              bool (*may)(Trainyard__V1__Job__State state), const char *verb, job_act_fn *act,
                              const void *args, struct err *e) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    struct outcome o = { 0 };
    request.labels = (char **)(uintptr_t)labels->items;
    request.n_labels = labels->n;
    TRY(client_list(c, jobs, "ListJobs", &request.base, CLIENT_ALL, &reply, e));
    const Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)reply;
    for (size_t i = 0; i < found->n_jobs; i++)
        if (may(found->jobs[i]->state))
            act_on(c, act, args, found->jobs[i]->name, false, &o);
    if (o.done + o.failed == 0)
        fprintf(stderr, "no job with these labels can be %s now\n", verb);
    return outcome_status(&o, false, verb, e);
}

status_t job_name_each(struct cli *c, char *const words[], const struct text_list *labels,
                       bool (*may)(Trainyard__V1__Job__State state), const char *verb, job_act_fn *act,
                       const void *args, struct err *e) {
    if ((words[0] != NULL) == (labels->n > 0))
        return err_set(e, ST_INVALID_ARGUMENT, "name jobs, or select them with --label, %s",
                       words[0] ? "not both" : "for example -l team=research");
    return words[0] ? each_word(c, words, verb, act, args, e) : each_labelled(c, labels, may, verb, act, args, e);
}
