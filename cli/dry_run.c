#include "cli/dry_run.h"

#include "api/spec/spec.h"
#include "cli/client.h"
#include "cli/spec_print.h"
#include "cli/validate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The free slots are a lower bound if hosts with ranks are drained. */
static void print_forecast(const Trainyard__V1__JobSpec *spec, const Trainyard__V1__GetStatusResponse__Slots *s) {
    const int ranks = spec_world_size(spec), left = s->slots - s->drained - s->used, unused = left > 0 ? left : 0;
    printf("the job needs %d %s slot%s: ", ranks, s->kind, ranks == 1 ? "" : "s");
    if (ranks > s->slots)
        printf("it would wait for executors, since all together have %d\n", s->slots);
    else if (ranks > unused)
        printf("it would wait, since %d of %d %s free\n", unused, s->slots, unused == 1 ? "is" : "are");
    else if (s->wanted > 0)
        printf("%d of %d are free, but jobs that need %" PRId64 " wait and go first at the same priority\n", unused,
               s->slots, s->wanted);
    else
        printf("it would start now, since %d of %d %s free\n", unused, s->slots, unused == 1 ? "is" : "are");
}

static status_t forecast(struct cli *c, const Trainyard__V1__JobSpec *spec, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__GetStatusResponse *status = NULL;
    status_t st = client_get_status(c, &status, e);
    if (st == ST_UNIMPLEMENTED) /* an older controller */
        return ST_OK;
    TRY(st);
    for (size_t i = 0; i < status->n_slots; i++)
        if (strcmp(status->slots[i]->kind, spec->resources->accelerator) == 0)
            print_forecast(spec, status->slots[i]);
    return ST_OK;
}

status_t dry_run(struct cli *c, const char *file, const Trainyard__V1__CreateJobRequest *request, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__ValidateJobResponse *answer = NULL;
    TRY(validate_ask(c, request, &answer, e));
    TRY(validate_show(c, file, answer, e));
    if (c->output != OUTPUT_TABLE || answer->n_problems || !answer->resolved)
        return ST_OK;
    TRY(forecast(c, answer->resolved, e));
    return spec_print(answer->resolved, e);
}
