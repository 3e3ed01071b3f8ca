#include "api/spec/spec.h"
#include "base/cleanup.h"
#include "executor/worker/check.h"
#include "executor/worker/job_roots.h"
#include "executor/worker/rank.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* A check is a guest on a host that trains. */
enum { CHECK_NICE = 10 };
static const rlim_t CHECK_MEMORY_BYTES = (rlim_t)4 << 30;

static void put(struct emitter *emitter, Trainyard__V1__CheckFinding *finding) {
    emitter_put(emitter, WORKER_RECORD(FINDING, finding, finding));
}

static void on_part(void *ctx, const char *part) {
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PART;
    finding.part = (char *)(uintptr_t)part;
    put(ctx, &finding);
}

static void on_problem(void *ctx, const char *text, bool of_host) {
    Trainyard__V1__SpecProblem problem = TRAINYARD__V1__SPEC_PROBLEM__INIT;
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    problem.text = (char *)(uintptr_t)text;
    problem.of_host = of_host;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM;
    finding.problem = &problem;
    put(ctx, &finding);
}

static void on_plan(void *ctx, const Trainyard__V1__Plan *plan) {
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PLAN;
    finding.plan = (Trainyard__V1__Plan *)(uintptr_t)plan;
    put(ctx, &finding);
}

static void on_unchecked(void *ctx, const char *text) {
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_UNCHECKED;
    finding.unchecked = (char *)(uintptr_t)text;
    put(ctx, &finding);
}

/* Where memory runs short, this process is the one to end, before any rank. A sanitizer's shadow is larger than any
 * limit. */
void rank_check_prepare(void) {
    setpriority(PRIO_PROCESS, 0, CHECK_NICE);
    FILE *score = fopen("/proc/self/oom_score_adj", "we");
    if (score) {
        fputs("1000", score);
        fclose(score);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit memory = { CHECK_MEMORY_BYTES, CHECK_MEMORY_BYTES };
    setrlimit(RLIMIT_AS, &memory);
#endif
}

static status_t check(const Trainyard__V1__WorkerCheck *given, struct emitter *emitter, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct job_roots roots;
    const struct check_sink sink = {
        .ctx = emitter, .part = on_part, .problem = on_problem, .plan = on_plan, .unchecked = on_unchecked
    };
    if (!given->spec)
        return err_set(e, ST_INTERNAL, "the check names no spec");
    TRY(spec_resolve(given->spec, &spec, NULL, e));
    job_roots_take(&(struct job_roots_given){ given->data_roots, given->n_data_roots, given->checkpoint_roots,
                                              given->n_checkpoint_roots, given->data_except, given->n_data_except },
                   &roots);
    const struct check_request request = { .spec = spec,
                                           .roots = &roots.data,
                                           .checkpoint_roots = &roots.checkpoints,
                                           .checkpoint_directory = given->checkpoint_directory,
                                           .init_directory = given->init_directory,
                                           .fork_directory = given->fork_directory,
                                           .cluster = given->cluster,
                                           .token_cache = given->token_cache,
                                           .threads = given->threads > 0 ? given->threads : 1,
                                           .memory_bytes = given->memory_bytes,
                                           .plan = given->plan };
    status_t st = check_spec(&request, &sink, e);
    job_roots_done(&roots);
    return st;
}

void rank_check(const Trainyard__V1__WorkerCheck *given, struct emitter *emitter, struct rank_end *ret) {
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED };
    if (check(given, emitter, &ret->why) != ST_OK)
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
    else
        ret->why.msg[0] = '\0';
}
