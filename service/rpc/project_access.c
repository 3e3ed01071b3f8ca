#include "service/rpc/project_access.h"

#include "api/spec/secret_fields.h"
#include "api/spec/spec.h"
#include "service/rpc/name.h"
#include "service/store/job.h"

#include <string.h>

/* What an RPC is about. */
enum subject {
    CLUSTER, /* not a project: refused */
    JOB,     /* a job, or one of its checkpoints, that a field of the request names */
    NEW_JOB, /* a spec, and the jobs with whose checkpoints it begins */
    LIST,    /* the jobs of the project: the handler filters */
    ANYTHING /* the same for every project: an archive of code is found by the digest of its content */
};
static const struct rule {
    const char *service, *method;
    enum subject subject;
    const char *field; /* of JOB */
} RULES[] = {
    { "JobService", "CreateJob", NEW_JOB, NULL },
    { "JobService", "ValidateJob", NEW_JOB, NULL },
    { "JobService", "ListJobs", LIST, NULL },
    { "JobService", "GetJob", JOB, "name" },
    { "JobService", "CancelJob", JOB, "name" },
    { "JobService", "PauseJob", JOB, "name" },
    { "JobService", "ResumeJob", JOB, "name" },
    { "JobService", "RetryJob", JOB, "name" },
    { "JobService", "DeleteJob", JOB, "name" },
    { "JobService", "WatchJob", JOB, "name" },
    { "JobService", "ListEvents", JOB, "name" },
    { "JobService", "GetProfile", JOB, "name" },
    { "JobService", "GetRankSeconds", JOB, "name" },
    { "JobService", "ExplainJob", CLUSTER, NULL }, /* its answer names jobs of others */
    { "MetricService", "QueryMetrics", JOB, "job" },
    { "MetricService", "ListPoints", JOB, "job" },
    { "LogService", "TailLogs", JOB, "job" },
    { "CheckpointService", "ListCheckpoints", JOB, "parent" },
    { "CheckpointService", "GetCheckpoint", JOB, "name" },
    { "CheckpointService", "PinCheckpoint", JOB, "name" },
    { "CheckpointService", "DeleteCheckpoint", JOB, "name" },
    { "CheckpointService", "VerifyCheckpoint", JOB, "name" },
    { "CheckpointService", "GetCheckpointLinks", JOB, "name" },
    { "CheckpointService", "Sample", JOB, "name" },
    { "ArtifactService", "ListArtifacts", JOB, "parent" },
    { "ArtifactService", "DownloadArtifact", JOB, "parent" },
    { "CodeService", "GetArchive", ANYTHING, NULL },
    { "CodeService", "UploadChunk", ANYTHING, NULL },
    { "ImportService", "ImportRun", CLUSTER, NULL },
    { "SecretService", "SetSecret", CLUSTER, NULL },
    { "SecretService", "ListSecrets", CLUSTER, NULL },
    { "SecretService", "DeleteSecret", CLUSTER, NULL },
    { "SweepService", "CreateSweep", CLUSTER, NULL },
    { "SweepService", "ValidateSweep", CLUSTER, NULL },
    { "SweepService", "GetSweep", CLUSTER, NULL },
    { "SweepService", "ListSweeps", CLUSTER, NULL },
    { "SweepService", "ListTrials", CLUSTER, NULL },
    { "SweepService", "CancelSweep", CLUSTER, NULL },
    { "SweepService", "DeleteSweep", CLUSTER, NULL },
    { "ExecutorService", "ListExecutors", CLUSTER, NULL },
    { "ExecutorService", "DrainExecutor", CLUSTER, NULL },
    { "ExecutorService", "UndrainExecutor", CLUSTER, NULL },
    { "QueueService", "ListQueues", CLUSTER, NULL },
    { "QueueService", "CreateQueue", CLUSTER, NULL },
    { "QueueService", "UpdateQueue", CLUSTER, NULL },
    { "QueueService", "DeleteQueue", CLUSTER, NULL },
    { "TokenService", "CreateToken", CLUSTER, NULL },
    { "TokenService", "ListTokens", CLUSTER, NULL },
    { "TokenService", "RevokeToken", CLUSTER, NULL },
    { "StatusService", "GetStatus", CLUSTER, NULL },
    { "AuditService", "ListAuditEntries", CLUSTER, NULL },
    { "DispatchService", "Attach", CLUSTER, NULL },
    { "DispatchService", "Report", CLUSTER, NULL },
    { "DispatchService", "DownloadCode", CLUSTER, NULL },
};

/* service: with its package. */
static const struct rule *find(const char *service, const char *method) {
    const char *dot = strrchr(service, '.');
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++)
        if (strcmp(RULES[i].service, dot ? dot + 1 : service) == 0 && strcmp(RULES[i].method, method) == 0)
            return &RULES[i];
    return NULL;
}

static const void *member(const ProtobufCMessage *m, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
    return f ? (const char *)m + f->offset : NULL;
}

static const char *text_of(const ProtobufCMessage *m, const char *field) {
    const char *const *text = member(m, field);
    return text && *text ? *text : "";
}

status_t project_access_covers(const ProtobufCServiceDescriptor *service, struct err *e) {
    for (unsigned i = 0; i < service->n_methods; i++) {
        const ProtobufCMethodDescriptor *m = &service->methods[i];
        const struct rule *r = find(service->name, m->name);
        if (!r)
            return err_set(e, ST_INVALID_ARGUMENT, "project_access.c does not say what %s of %s is about", m->name,
                           service->name);
        if (r->subject == JOB && !protobuf_c_message_descriptor_get_field_by_name(m->input, r->field))
            return err_set(e, ST_INVALID_ARGUMENT, "project_access.c names no field of the request of %s of %s",
                           m->name, service->name);
    }
    return ST_OK;
}

static status_t judge_job(struct store *s, const struct project_call *call, int64_t job, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    const char *project;
    bool found;
    TRY(store_job_project(s, m, job, &project, &found, e));
    if (!found || strcmp(project, call->project) == 0)
        return ST_OK;
    return err_set(e, ST_PERMISSION_DENIED,
                   "jobs/%lld is of another project: %s needs a role in it, and the token '%s' is for the project '%s'",
                   (long long)job, call->method, call->token, call->project);
}

static status_t judge_fork(struct store *s, const struct project_call *call, const char *fork, struct err *e) {
    int64_t job, checkpoint, step;
    if (!*fork)
        return ST_OK;
    status_t st = name_fork(fork, &job, &checkpoint, &step, e);
    if (st == ST_OK)
        st = judge_job(s, call, job, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "fork: ");
}

static status_t judge_new_job(struct store *s, const struct project_call *call, struct err *e) {
    const Trainyard__V1__JobSpec *const *member_spec = member(call->request, "spec");
    const Trainyard__V1__JobSpec *spec = member_spec ? *member_spec : NULL;
    const char *from = spec && spec->train && spec->train->init_from ? spec->train->init_from : "";
    int64_t job, checkpoint;
    TRY(judge_fork(s, call, text_of(call->request, "fork"), e));
    if (spec_checkpoint_name(from, &job, &checkpoint)) {
        status_t st = judge_job(s, call, job, e);
        if (st != ST_OK)
            return err_prefix(e, st, "train.init_from: ");
    }
    if (spec && spec_names_secrets(spec))
        return err_set(e, ST_PERMISSION_DENIED,
                       "secrets belong to the whole cluster, and the token '%s' is for the project '%s': a job that "
                       "uses secrets needs a token without a project",
                       call->token, call->project);
    return ST_OK;
}

status_t project_access_judge(struct store *s, const struct project_call *call, struct err *e) {
    const struct rule *r = find(call->service, call->method);
    int64_t job, checkpoint;
    switch (r ? r->subject : CLUSTER) {
    case ANYTHING:
    case LIST: return ST_OK;
    case NEW_JOB: return judge_new_job(s, call, e);
    case JOB:
        TRY(name_job_or_checkpoint(text_of(call->request, r->field), &job, &checkpoint, e));
        return judge_job(s, call, job, e);
    default:
        return err_set(e, ST_PERMISSION_DENIED,
                       "%s is about the whole cluster, and the token '%s' is for the project '%s' only", call->method,
                       call->token, call->project);
    }
}
