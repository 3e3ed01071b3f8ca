/* The checks before a job gets an id. ValidateJob reports all problems; CreateJob continues if there are none. */
#ifndef SERVICE_RPC_SUBMISSION_H
#define SERVICE_RPC_SUBMISSION_H

#include "api/spec/spec.h"
#include "service/controller/controller.h"
#include "service/rpc/host_check.h"
#include "service/store/job.h"

/* The request of a client; all pointers are borrowed. */
struct submission_request {
    const Trainyard__V1__JobSpec *spec;
    const char *fork;    /* "" = the job is not a fork */
    bool wait_for_hosts; /* the job may need more slots than are attached */
    bool skip_check;     /* no host is asked */
    bool plan;           /* report all problems: hosts are asked again, and also for the plan */
    deadline_ms_t deadline;
};

struct submission {
    Trainyard__V1__JobSpec *spec;          /* resolved; NULL if a field of the spec is invalid */
    struct store_origin origin;            /* the checkpoint that the job begins with; origin.checkpoint 0 = none */
    char *init_directory, *fork_directory; /* the directory of that checkpoint, or NULL; owned */
    bool directory_refused;                /* this controller does not allow checkpoint.directory */
    struct spec_problems problems;         /* why the job gets no id: one line each, with the field's path */
    struct host_answer hosts;              /* `problems` contains its problems too */
};

/* Returns ST_OK even if there are problems. UNAVAILABLE: this controller does not lead. NOT_FOUND, FAILED_PRECONDITION:
 * the checkpoint that the job would begin with does not exist. Always call submission_done. */
MUST_CHECK status_t submission_judge(struct controller *c, const struct submission_request *request,
                                     struct submission *ret, struct err *e);
void submission_done(struct submission *s);

#endif
