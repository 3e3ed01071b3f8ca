#include "executor/agent/spec_checks.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/cores.h"
#include "base/memory.h"
#include "executor/agent/data_copies.h"
#include "executor/agent/data_exclusions.h"
#include "executor/agent/environments.h"
#include "executor/agent/job_sandboxes.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/worker_launch.h"

#include <string.h>

static bool output_send(struct control_stream *stream, Trainyard__V1__CheckOutput *output) {
    return control_stream_send(stream, AGENT_MESSAGE(CHECK_OUTPUT, check_output, output));
}

static void send_last(struct control_stream *stream, int64_t id, status_t status, const char *why) {
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    output.check = id;
    output.last = true;
    output.status = status;
    output.message = (char *)(uintptr_t)why;
    output_send(stream, &output);
}

static bool forward(struct control_stream *stream, int64_t id, const Trainyard__V1__WorkerRecord *record) {
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_FINDING)
        return true;
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    output.check = id;
    output.finding = record->finding;
    return output_send(stream, &output);
}

static status_t status_of(Trainyard__V1__WorkerEnd__Cause cause) {
    return cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED ? ST_OK : ST_INTERNAL;
}

const struct request_kind spec_check_kind = {
    .max = 2,
    .full = "this executor already checks 2 specs, its maximum",
    .worker = "its worker",
    .unread = "was killed because the controller does not read",
    .forward = forward,
    .send_last = send_last,
    .status_of = status_of,
};

/* The number of the job's ranks that this executor may run at the same time. */
static int ranks_of(const struct host *host, const Trainyard__V1__JobSpec *spec) {
    const Trainyard__V1__ParallelSpec *p = spec ? spec->parallel : NULL;
    const int64_t ranks = p && p->elastic ? p->elastic->max : p ? (int64_t)p->data * p->pipeline : 1;
    const int64_t here = ranks < host->inventory.slots ? ranks : host->inventory.slots;
    return here > 1 ? (int)here : 1;
}

/* Of all ranks: what the kernel lets them use together, or the host's. */
static int64_t memory_of_ranks(const struct host *host) {
    const int64_t limit = host->cgroups ? cgroups_memory_bytes(host->cgroups) : 0, all = memory_allowed();
    return limit > 0 && limit < all ? limit : all;
}

/* The memory of one rank: that of its own device, or its share of this host's memory. */
static int64_t memory_of(const struct host *host, const Trainyard__V1__JobSpec *spec) {
    int64_t max = 0;
    if (!spec || !spec->resources || strcmp(spec->resources->accelerator, "cuda") != 0)
        return memory_of_ranks(host) / ranks_of(host, spec);
    for (int i = 0; i < host->inventory.n_devices; i++)
        max = host->inventory.devices[i].memory_bytes > max ? host->inventory.devices[i].memory_bytes : max;
    return max;
}

/* The largest number of threads that a rank of the job may get here: its plan has space for that many. */
static int threads_of(const struct host *host, const Trainyard__V1__JobSpec *spec) {
    const int share = cores_per_rank(host->inventory.cores, ranks_of(host, spec));
    const int wanted = spec && spec->resources ? spec->resources->cores : 0;
    return wanted > 0 && wanted < share ? wanted : share;
}

void spec_check_finding(struct request_workers *checks, int64_t check, Trainyard__V1__CheckFinding *finding) {
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    output.check = check;
    output.finding = finding;
    output_send(request_workers_stream(checks), &output);
}

/* Another host may run it. */
static void refuse(struct control_stream *stream, int64_t id, const char *why) {
    Trainyard__V1__SpecProblem problem = TRAINYARD__V1__SPEC_PROBLEM__INIT;
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    problem.text = (char *)(uintptr_t)why;
    problem.of_host = true;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM;
    finding.problem = &problem;
    output.check = id;
    output.finding = &finding;
    output_send(stream, &output);
    send_last(stream, id, ST_OK, "");
}

/* The field for which the host needs a cache of data; NULL: none. */
static const char *field_of_stores(const Trainyard__V1__WorkerCheck *request) {
    CLEANUP(freep) char *weights = shard_weights_pattern(request->spec, request->weights);
    return data_copies_needed(request->spec)          ? "data"
           : spec_checkpoints_in_store(request->spec) ? "checkpoint.store"
           : weights                                  ? "train.init_from"
                                                      : NULL;
}

void spec_check_start(struct request_workers *checks, const struct host *host, const Trainyard__V1__StartCheck *start) {
    if (!start->request) {
        request_workers_refuse(checks, start->check, "the order to check a spec has no spec");
        return;
    }
    if (start->request->spec && start->request->spec->program && !host->options->allow_programs) {
        refuse(request_workers_stream(checks), start->check, "program: " WORKER_LAUNCH_NO_PROGRAMS);
        return;
    }
    struct err why;
    const Trainyard__V1__ProgramSpec *program = start->request->spec ? start->request->spec->program : NULL;
    if (program && environments_needed(program) &&
        environments_check(host->options, program->image ? "program.image" : "program.python", &why) != ST_OK) {
        refuse(request_workers_stream(checks), start->check, why.msg);
        return;
    }
    if (program && program->image && *host->no_images.msg) {
        status_ignore(err_set(&why, ST_FAILED_PRECONDITION, "program.image: this host cannot run images: %s",
                              host->no_images.msg));
        refuse(request_workers_stream(checks), start->check, why.msg);
        return;
    }
    const char *field = start->request->spec ? field_of_stores(start->request) : NULL;
    if (field && *host->no_data.msg) {
        status_ignore(err_set(&why, ST_FAILED_PRECONDITION, "%s: %s", field, host->no_data.msg));
        refuse(request_workers_stream(checks), start->check, why.msg);
        return;
    }
    struct data_exclusions exclusions;
    data_exclusions_find(host, &exclusions);
    Trainyard__V1__WorkerCheck own = *start->request;
    own.n_secrets = 0;
    own.threads = threads_of(host, own.spec);
    own.data_roots = (char **)(uintptr_t)host->options->data_roots;
    own.n_data_roots = host->options->n_data_roots;
    own.checkpoint_roots = (char **)(uintptr_t)host->options->checkpoint_roots;
    own.n_checkpoint_roots = host->options->n_checkpoint_roots;
    own.data_except = exclusions.list;
    own.n_data_except = exclusions.n;
    Trainyard__V1__SandboxOrder sandbox;
    own.sandbox = job_sandbox_order(host->options, &sandbox);
    own.cluster = (char *)(uintptr_t)directory_cluster(host->directory);
    own.memory_bytes = memory_of(host, own.spec);
    own.token_cache = (char *)(uintptr_t)host->token_cache;
    own.token_cache_bytes = host->options->token_cache_bytes;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK;
    command.check = &own;
    request_workers_start(checks, &(struct request_order){ .id = start->check,
                                                           .spec = own.spec,
                                                           .threads = own.threads,
                                                           .command = &command,
                                                           .limit_s = CHECK_SECONDS_MAX,
                                                           .too_long = "took too long and was killed" });
}
