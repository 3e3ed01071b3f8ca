/* A worker reads its data through base/roots.h, which already refuses what the sandbox hides. The sandbox holds if a
 * file of the user's, such as an image or a checkpoint, makes a library below do something else.
 *
 * Ranks of one host that are no ranks on GPUs read each other's memory (engine/collective/shm_transport.h), which
 * Landlock forbids between two sandboxes. Such a rank has no Landlock, unless the order requires it: then the ranks
 * send everything through sockets. */
#include "executor/worker/worker_sandbox.h"

#include "base/alloc.h"
#include "base/cluster_mark.h"
#include "executor/worker/job_sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file that names the owner of the folder `levels` above the path. */
static void grant_mark(struct job_sandbox *s, const char *path, int levels) {
    if (*path)
        job_sandbox_grant_entry(s, path, levels, CLUSTER_MARK_NAME);
}

static void roots_list(struct job_sandbox *s, const struct job_roots_given *given) {
    for (size_t i = 0; i < given->n_checkpoints; i++)
        sandbox_grant(&s->policy, given->checkpoints[i], SANDBOX_LIST);
}

static void policy_of_start(struct job_sandbox *s, const Trainyard__V1__WorkerStart *start) {
    const Trainyard__V1__AttemptStart *at = start->attempt;
    const struct job_roots_given given = { start->data_roots,         start->n_data_roots, start->checkpoint_roots,
                                           start->n_checkpoint_roots, start->data_except,  start->n_data_except };
    job_sandbox_init(s, &given, start->sandbox);
    roots_list(s, &given);
    s->policy.abstract_sockets = s->policy.gpus && at->world_size > 1;
    s->policy.no_files = !s->policy.gpus && at->n_ranks > 1 && !start->sandbox->required;
    sandbox_grant(&s->policy, at->checkpoint_directory, SANDBOX_WRITE);
    job_sandbox_grant_above(s, at->checkpoint_directory, 1, SANDBOX_READ);
    job_sandbox_grant_above(s, at->resume_directory, 1, SANDBOX_READ);
    sandbox_grant(&s->policy, at->init_directory, SANDBOX_READ);
    if (*start->checkpoint_local)
        sandbox_grant(&s->policy, start->checkpoint_local, SANDBOX_READ);
    if (*start->data_cache)
        sandbox_grant(&s->policy, start->data_cache, SANDBOX_READ);
    sandbox_grant(&s->policy, start->token_cache, SANDBOX_OPEN);
    grant_mark(s, at->checkpoint_directory, 2);
    grant_mark(s, at->resume_directory, 3);
    grant_mark(s, at->init_directory, 3);
}

static void policy_of_check(struct job_sandbox *s, const Trainyard__V1__WorkerCheck *check) {
    const struct job_roots_given given = { check->data_roots,         check->n_data_roots, check->checkpoint_roots,
                                           check->n_checkpoint_roots, check->data_except,  check->n_data_except };
    job_sandbox_init(s, &given, check->sandbox);
    roots_list(s, &given);
    sandbox_grant(&s->policy, check->init_directory, SANDBOX_READ);
    sandbox_grant(&s->policy, check->fork_directory, SANDBOX_READ);
    sandbox_grant(&s->policy, check->token_cache, SANDBOX_OPEN);
    grant_mark(s, check->checkpoint_directory, 0);
    grant_mark(s, check->init_directory, 3);
    grant_mark(s, check->fork_directory, 3);
}

static void policy_of_sample(struct job_sandbox *s, const Trainyard__V1__WorkerSample *sample) {
    const struct job_roots_given given = { .checkpoints = sample->checkpoint_roots,
                                           .n_checkpoints = sample->n_checkpoint_roots,
                                           .except = sample->data_except,
                                           .n_except = sample->n_data_except };
    job_sandbox_init(s, &given, sample->sandbox);
    roots_list(s, &given);
    job_sandbox_grant_above(s, sample->directory, 1, SANDBOX_READ); /* a program's manifest is beside its checkpoint */
    if (!*sample->checkpoint_local)
        grant_mark(s, sample->directory, 3);
}

static void policy_of_encode(struct job_sandbox *s, const Trainyard__V1__WorkerEncode *encode) {
    const struct job_roots_given given = { encode->data_roots,         encode->n_data_roots, encode->checkpoint_roots,
                                           encode->n_checkpoint_roots, encode->data_except,  encode->n_data_except };
    job_sandbox_init(s, &given, encode->sandbox);
    if (*encode->data_cache)
        sandbox_grant(&s->policy, encode->data_cache, SANDBOX_READ);
    sandbox_grant(&s->policy, encode->token_cache, SANDBOX_WRITE);
}

status_t worker_sandbox_enter(const Trainyard__V1__WorkerCommand *first, struct err *e) {
    CLEANUP(freep) struct job_sandbox *s = alloc_zeroed(1, sizeof *s);
    CLEANUP(sandbox_closep) struct sandbox *sandbox = NULL;
    const bool starts = first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    if (starts && first->start->sandbox && first->start->attempt)
        policy_of_start(s, first->start);
    else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK && first->check->sandbox)
        policy_of_check(s, first->check);
    else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE && first->sample->sandbox)
        policy_of_sample(s, first->sample);
    else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENCODE && first->encode->sandbox)
        policy_of_encode(s, first->encode);
    else
        return ST_OK;
    TRY(sandbox_open(&s->policy, &sandbox, e));
    const int why = sandbox_apply(sandbox);
    return why == 0 ? ST_OK : err_set(e, ST_INTERNAL, "the sandbox cannot be entered: %s", strerror(why));
}
