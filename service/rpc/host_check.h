/* Asks attached executors whether a job could run there, before it has an id. */
#ifndef SERVICE_RPC_HOST_CHECK_H
#define SERVICE_RPC_HOST_CHECK_H

#include "api/spec/spec.h"
#include "base/clock.h"
#include "service/controller/controller.h"

struct host_check {
    const Trainyard__V1__JobSpec *spec; /* resolved */
    /* The checkpoint that the job begins with; "" = none. Of an init_directory in a store a host only looks for the
     * files. */
    const char *init_directory, *fork_directory;
    deadline_ms_t deadline;
    bool skip_folder; /* do not check the folder for checkpoints */
    bool plan;        /* also ask for the plan: the resources that the job needs */
};

#define HOST_CHECK_BUSY "other specs are being checked"

struct host_answer {
    struct spec_problems problems;  /* one line each, with the field's path, and with the hosts if a host causes it */
    struct spec_problems unchecked; /* checks that were not made, and problems of some hosts only */
    Trainyard__V1__Plan *plan;      /* or NULL */
    int asked;                      /* hosts */
    bool busy;                      /* HOST_CHECK_BUSY is in `unchecked`: no host was asked */
    bool good;                      /* one host was checked completely and lacks nothing */
};
void host_answer_done(struct host_answer *a);

/* Checks the spec on one executor with slots of the job's kind. If that host lacks something that another may have, or
 * does not answer, the next host is asked, HOST_CHECK_MAX_HOSTS in all. A job is refused for a problem of the spec, or
 * if every attached host was asked, every check was complete, and no host can run the job. Otherwise the problems of
 * hosts are in `unchecked`. While SPEC_CHECK_MAX_CALLERS calls are checking, the answer is HOST_CHECK_BUSY at once.
 * RESOURCE_EXHAUSTED without memory. The caller always calls host_answer_done. */
enum { HOST_CHECK_MAX_HOSTS = 3 };
MUST_CHECK status_t host_check_ask(struct controller *c, const struct host_check *check, struct host_answer *ret,
                                   struct err *e);

/* The same, but a spec that a host has checked without a problem within the last minute is not checked again. ret has
 * no plan. */
MUST_CHECK status_t host_check_remember(struct controller *c, const struct host_check *check, struct host_answer *ret,
                                        struct err *e);

#endif
