#include "cli/fork.h"

#include "api/codec/text.h"
#include "api/spec/file.h"
#include "base/cleanup.h"
#include "cli/job_name.h"

#include <stdio.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>

static status_t forked_spec(struct cli *c, const char *fork, Trainyard__V1__JobSpec **ret, struct err *e) {
    char job[80], name[JOB_NAME_BYTES];
    size_t n = strncmp(fork, "jobs/", 5) == 0 ? 5 : 0;
    n += strcspn(fork + n, "@/");
    if (n >= sizeof job)
        return err_set(e, ST_INVALID_ARGUMENT, "--fork: '%.40s...' is not a job", fork);
    memcpy(job, fork, n);
    job[n] = '\0';
    TRY(job_name_find(c, job, name, e));
    CLEANUP(message_freep) Trainyard__V1__Job *parent = NULL;
    TRY(client_get_job(c, name, &parent, e));
    if (!parent->spec)
        return err_set(e, ST_INTERNAL, "%s has no spec", name);
    if (parent->spec->train) /* the job's own wish, which the fork has to repeat */
        TRY(codec_set_path(&parent->spec->base, "train.changed_data", "", NULL, e));
    *ret = take_ptr(&parent->spec);
    return ST_OK;
}

status_t fork_or_file_read(struct cli *c, const char *command, const char *fork, const char *file,
                           Trainyard__V1__JobSpec **ret, char ret_shown[FORK_FILE_BYTES], struct err *e) {
    if (!file && !fork)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: name a file, or a job with --fork", command);
    if (file)
        snprintf(ret_shown, FORK_FILE_BYTES, "%s", spec_file_name(file));
    else
        snprintf(ret_shown, FORK_FILE_BYTES, "--fork %.80s", fork);
    return file ? spec_file_read(file, ret, e) : forked_spec(c, fork, ret, e);
}
