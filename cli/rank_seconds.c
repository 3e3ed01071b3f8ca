#include "cli/rank_seconds.h"

#include "cli/output.h"

#include <stdio.h>

static void add_causes(struct table *t, const Trainyard__V1__RankSeconds *s) {
    const double causes[] = { s->start, s->data, s->compute, s->waiting, s->checkpoint, s->repeated, s->idle };
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        table_cell(t, "%.1fs", causes[i]);
}

static void add_attempt(struct table *t, const void *message) {
    const Trainyard__V1__AttemptSeconds *a = message;
    table_cell(t, "%d", a->attempt);
    table_cell(t, "%d", a->ranks);
    table_cell(t, "%.1fs", a->wall_seconds);
    add_causes(t, a->sum);
}

static const struct output_columns attempt_columns = {
    { "ATTEMPT", "RANKS", "WALL", "START", "DATA", "COMPUTE", "WAITING", "CHECKPOINT", "REPEATED", "IDLE" }, add_attempt
};

static void add_rank(struct table *t, const void *message) {
    const Trainyard__V1__OneRankSeconds *r = message;
    table_cell(t, "%d", r->rank);
    add_causes(t, r->sum);
}

static const struct output_columns rank_columns = {
    { "RANK", "START", "DATA", "COMPUTE", "WAITING", "CHECKPOINT", "REPEATED", "IDLE" }, add_rank
};

static status_t ask(struct cli *c, const char *name, int attempt, Trainyard__V1__GetRankSecondsResponse **ret,
                    struct err *e) {
    Trainyard__V1__GetRankSecondsRequest request = TRAINYARD__V1__GET_RANK_SECONDS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = (char *)(uintptr_t)name;
    request.attempt = attempt;
    TRY(client_call(c, &trainyard__v1__job_service__descriptor, "GetRankSeconds", &request.base, &reply, e));
    *ret = (Trainyard__V1__GetRankSecondsResponse *)reply;
    return ST_OK;
}

static status_t print_attempts(const Trainyard__V1__GetRankSecondsResponse *answer, struct err *e) {
    return output_table(&attempt_columns, answer->attempts, answer->n_attempts, e);
}

status_t rank_seconds_print_attempts(struct cli *c, const char *name, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__GetRankSecondsResponse *answer = NULL;
    status_t st = ask(c, name, 0, &answer, e);
    if (st == ST_UNIMPLEMENTED)
        return ST_OK;
    if (st != ST_OK || answer->n_attempts == 0)
        return st;
    putchar('\n');
    return print_attempts(answer, e);
}

status_t rank_seconds_print(struct cli *c, const char *name, int attempt, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__Job *job = NULL;
    CLEANUP(message_freep) Trainyard__V1__GetRankSecondsResponse *answer = NULL;
    bool done = false;
    if (attempt == 0) {
        TRY(client_get_job(c, name, &job, e));
        attempt = job->attempt;
    }
    TRY(ask(c, name, attempt, &answer, e));
    TRY(output_message(c, &answer->base, &done, e));
    if (done)
        return ST_OK;
    TRY(print_attempts(answer, e));
    if (answer->n_ranks == 0)
        return ST_OK;
    putchar('\n');
    return output_table(&rank_columns, answer->ranks, answer->n_ranks, e);
}
