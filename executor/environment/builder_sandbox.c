#include "executor/environment/builder_sandbox.h"

#include "base/alloc.h"
#include "executor/worker/job_sandbox.h"

#include <stdio.h>
#include <stdlib.h>

status_t builder_sandbox_open(const Trainyard__V1__EnvironmentBuild *order, const char *folder, struct sandbox **ret,
                              struct err *e) {
    char state[PATH_MAX];
    *ret = NULL;
    if (!order->sandbox)
        return ST_OK;
    CLEANUP(freep) struct job_sandbox *s = alloc_zeroed(1, sizeof *s);
    const struct job_roots_given given = { order->data_roots,         order->n_data_roots, order->checkpoint_roots,
                                           order->n_checkpoint_roots, order->data_except,  order->n_data_except };
    Trainyard__V1__SandboxOrder nothing = TRAINYARD__V1__SANDBOX_ORDER__INIT; /* writable roots are for jobs */
    if (snprintf(state, sizeof state, "%s/.state", order->cache) >= (int)sizeof state)
        return err_set(e, ST_INTERNAL, "the path of the cache of environments is too long");
    job_sandbox_init(s, &given, &nothing);
    sandbox_hide(&s->policy, state);
    sandbox_grant(&s->policy, *order->code ? order->code : NULL, SANDBOX_READ);
    sandbox_grant(&s->policy, folder, SANDBOX_WRITE);
    return sandbox_open(&s->policy, ret, e);
}
