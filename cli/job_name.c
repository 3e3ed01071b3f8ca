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
