#include "service/rpc/sweep_judge.h"

#include "api/rpc/call.h"
#include "api/spec/problems.h"
#include "service/controller/spec_check.h"

void sweep_judgement_done(struct sweep_judgement *j) {
    j->spec = sweep_free(j->spec);
    spec_problems_done(&j->problems);
    submission_done(&j->first);
}

static status_t judge_first(struct controller *c, const struct sweep_request *request, struct sweep_judgement *j,
                            struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *first = NULL;
    TRY(sweep_trial_spec(j->spec, 1, &first, e));
    const struct submission_request asked = { .spec = first,
                                              .fork = "",
                                              .wait_for_hosts = request->wait_for_hosts,
                                              .skip_check = request->skip_check,
                                              .deadline = request->deadline };
    status_t st = submission_judge(c, &asked, &j->first, e);
    if (st != ST_OK)
        return err_prefix(e, st, "trial 1: ");
    for (size_t i = 0; i < j->first.problems.n; i++)
        problem_add(&j->problems, "trial 1: %s", j->first.problems.lines[i]);
    return ST_OK;
}

static status_t check_time(const struct sweep_request *request, int trial, struct err *e) {
    if (clock_mono_ms() >= request->deadline)
        return err_set(e, ST_DEADLINE_EXCEEDED, "the deadline came before the spec of trial %d was checked", trial);
    if (request->call && rpc_cancelled(request->call))
        return err_set(e, ST_CANCELLED, "the call ended before the spec of trial %d was checked", trial);
    return ST_OK;
}

static status_t check_trials(const struct sweep_request *request, const Trainyard__V1__SweepSpec *sweep,
                             struct err *e) {
    const int trials = sweep_trials(sweep), to = request->to && request->to < trials ? request->to : trials;
    for (int trial = request->from; trial <= to; trial++) {
        TRY(check_time(request, trial, e));
        TRY(sweep_check_trials(sweep, trial, trial, e));
    }
    return ST_OK;
}

/* Thousands of specs keep a thread busy for seconds: only half of the threads may do that. */
static status_t check_trials_bounded(struct controller *c, const struct sweep_request *request,
                                     const Trainyard__V1__SweepSpec *sweep, struct err *e) {
    if (!spec_checks_enter(controller_spec_checks(c)))
        return err_set(e, ST_UNAVAILABLE, "%s: repeat the call", HOST_CHECK_BUSY);
    status_t st = check_trials(request, sweep, e);
    spec_checks_leave(controller_spec_checks(c));
    return st;
}

status_t sweep_judge(struct controller *c, const struct sweep_request *request, struct sweep_judgement *j,
                     struct err *e) {
    struct err why = { "" };
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    if (!request->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "spec: it is missing");
    status_t st = sweep_resolve(request->spec, &j->spec, &j->problems, e);
    if (st != ST_OK)
        return j->problems.n ? ST_OK : st;
    st = check_trials_bounded(c, request, j->spec, &why);
    if (st == ST_INVALID_ARGUMENT) {
        problem_add(&j->problems, "%s", why.msg);
        return ST_OK;
    }
    if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    return judge_first(c, request, j, e);
}
