/* Each family of host_memory.h is one function of the plan.
 *
 * Plans: a rank builds and verifies the plans of its gang, or of its column (gang_plan.h), before it allocates the
 * arena, the snapshot and the batches. What that takes counts only as far as it exceeds what is allocated afterwards.
 *
 * Kernels: the linear layers of this rank's stage, each shape once, because products of one shape share a primitive. */
#include "engine/run/host_memory.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "engine/checkpoint/writer.h"
#include "engine/data/loader.h"
#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "engine/run/gang_plan.h"
#include "engine/run/state_tensors.h"
#include "engine/run/step_control.h"
#include "kernels/kernels.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Measured with tests/host_memory.py. */
enum {
    THREAD_BYTES = 256 << 10,      /* a thread of the team: its stack and its heap */
    CONVOLUTION_BYTES = 192 << 10, /* two primitives and their reorders */
    PEER_BYTES = 64 << 10,         /* connections to another rank */
    RANKS_TRIED = 64,              /* data ranks whose part of a snapshot is compared */
    VERIFIER_FACTOR = 2,           /* the verifier's state, in sizes of the plans that it reads */
};

struct host_memory_facts host_memory_facts_of(const struct engine_config *c, const struct kernels *kernels,
                                              size_t data_bytes) {
    const int threads = c->max_threads > c->threads ? c->max_threads : c->threads;
    return (struct host_memory_facts){ .kernels = kernels,
                                       .data_bytes = data_bytes,
                                       .program_bytes = c->program_bytes,
                                       .opening_bytes = c->opening_bytes,
                                       .threads = threads > 1 ? threads : 1,
                                       .workers = c->workers,
                                       .ahead = loader_ahead(c->workers, c->prefetch),
                                       .checkpoints = c->checkpoint.directory != NULL,
                                       .device = strcmp(c->device, "cpu") != 0 };
}

static size_t own_state_bytes(const struct state_tensors *state, const struct plan *plan,
                              struct checkpoint_segment *segments) {
    const int n = state_segments(state, NULL, plan, true, segments, NULL);
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += plan_aligned((size_t)segments[i].count * sizeof(float));
    return bytes;
}

/* Of this rank, or of the data rank that writes most. With ZeRO 0 all data ranks have the same plan and divide what
 * they write in chunks and whole tensors, which is not quite equal; the last ones get the chunks that remain. */
static size_t snapshot_bytes(const struct plan *plan, bool own) {
    CLEANUP(state_tensors_freep) struct state_tensors *state = state_tensors_new(plan);
    CLEANUP(freep)
    struct checkpoint_segment *segments = alloc_zeroed((size_t)state_segments_max(state, plan) + 1, sizeof *segments);
    size_t max = own_state_bytes(state, plan, segments), all = 0;
    struct plan other = *plan;
    const int D = plan->layout.data;
    for (int d = D > RANKS_TRIED ? D - RANKS_TRIED : 0; !own && plan->layout.zero == 0 && d < D; d++) {
        other.layout.rank = plan_stage(&plan->layout) * D + d;
        const size_t bytes = own_state_bytes(state, &other, segments);
        max = bytes > max ? bytes : max;
    }
    for (int t = 0; t < state->n; t++)
        all += (size_t)checkpoint_tensor_elements(&state->tensors[t]) * sizeof(float);
    return max + checkpoint_digest_bytes(all, max, plan->layout.world_size);
}

/* The ring holds the inputs that this stage loads, an evaluation's batch all that the model has. */
static size_t batch_bytes(const struct host_memory_facts *f, const struct plan *plan) {
    const struct graph *g = plan->graph;
    const size_t valid = f->device ? (size_t)(CONTROL_STEPS * plan_own_micro_batches(&plan->layout)) : 1;
    size_t bytes = 0;
    for (int b = 0; b < g->n_batch; b++) {
        const size_t one = graph_batch_bytes(g, g->batch[b]);
        bytes += one + (plan_loads(plan, g->batch[b]) ? one * ((size_t)f->ahead + valid) : 0);
    }
    return bytes;
}

/* --- kernels ---*/

struct layers {
    struct linear_dims seen[KERNELS_MAX_PRODUCTS];
    int n;
    struct kernels_memory memory;
};

/* Field by field: bytes of padding may differ. */
static bool is_same(const struct linear_dims *a, const struct linear_dims *b) {
    return a->rows == b->rows && a->in == b->in && a->out == b->out && a->transposed == b->transposed &&
           linear_stride(a) == linear_stride(b);
}

static bool is_new(struct layers *l, const struct linear_dims *d) {
    for (int i = 0; i < l->n; i++)
        if (is_same(&l->seen[i], d))
            return false;
    if (l->n < KERNELS_MAX_PRODUCTS)
        l->seen[l->n++] = *d;
    return true;
}

/* passes: of the three of a layer, how many are computed. */
static void add_layer(struct layers *l, const struct kernels *k, const struct linear_dims *d, size_t passes) {
    if (!is_new(l, d))
        return;
    const struct kernels_memory one = k->linear_memory(k, d);
    l->memory.shared = one.shared > l->memory.shared ? one.shared : l->memory.shared;
    l->memory.own += one.own * passes / 3;
}

static void add_ops(struct layers *l, const struct kernels *k, const struct plan *plan) {
    const struct graph *g = plan->graph;
    for (int i = 0; i < g->n_ops; i++) {
        const struct op *op = &g->ops[i];
        struct linear_dims dims[OP_PARAMETERS] = { { .rows = 0 } };
        if (plan->block_virtual_stage[op->block] < 0 || !op->kind->linears)
            continue;
        const int n = op->kind->linears(g, op, dims);
        for (int d = 0; d < n; d++)
            add_layer(l, k, &dims[d], 3);
        l->memory.own += n == 0 ? CONVOLUTION_BYTES : 0;
    }
}

/* The parameters that this rank steps. */
static void add_steps(struct layers *l, const struct kernels *k, const struct plan *plan) {
    const struct optimizer_kind *optimizer = plan->layout.optimizer;
    for (int s = 0; optimizer && optimizer->linears && s < plan->n_shards; s++) {
        struct linear_dims dims[OPTIMIZER_LINEARS] = { { .rows = 0 } };
        const int n = optimizer->linears(&plan->graph->parameters[plan->shards[s].parameter], dims);
        for (int d = 0; d < n; d++)
            add_layer(l, k, &dims[d], 1);
    }
}

/* A table in another precision has an fp32 table with buffers of its own. */
static size_t kernels_bytes(const struct kernels *k, const struct plan *plan) {
    struct layers ops = { .n = 0 }, steps = { .n = 0 };
    if (!k->linear_memory)
        return 0;
    add_ops(&ops, k, plan);
    add_steps(k->fp32 == k ? &ops : &steps, k->fp32, plan);
    return ops.memory.shared + ops.memory.own + steps.memory.shared + steps.memory.own;
}

/* --- plans ---*/

static size_t graph_bytes(const struct graph *g) {
    return (size_t)g->n_tensors * sizeof *g->tensors + (size_t)g->n_parameters * sizeof *g->parameters +
           (size_t)g->n_uses * sizeof *g->uses + (size_t)g->n_ops * sizeof *g->ops +
           (size_t)g->n_reverse * sizeof *g->reverse + (size_t)g->n_blocks * sizeof *g->blocks;
}

size_t host_memory_of_plan(const struct plan *p) {
    size_t bytes = sizeof *p;
    for (int q = 0; q < QUEUES; q++)
        bytes += (size_t)p->queue[q].n * sizeof *p->queue[q].items;
    const size_t parts = (size_t)p->layout.data + 1;
    bytes += (size_t)p->n_buckets * (sizeof *p->buckets + parts * sizeof(int) + 3 * sizeof(size_t));
    bytes += (size_t)p->n_shards * sizeof *p->shards;
    bytes += (size_t)p->n_tensors * (LIFETIMES * sizeof *p->tensors[0] + sizeof *p->upload_offset + 2 * sizeof(int));
    bytes += (size_t)p->graph->n_uses * (2 * sizeof(int64_t) + 4 * sizeof(int) + sizeof(size_t));
    return bytes + (size_t)p->graph->n_parameters * (2 * sizeof(int64_t) + sizeof(int));
}

/* Plans that gang_plan_make holds at a time. */
static size_t plans_at_once(const struct plan_layout *l) {
    return (size_t)(l->world_size <= GANG_PLAN_WHOLE ? l->world_size : l->stages);
}

/* The plan, that of evaluations, and the graph; before, everything that is needed to verify them. */
static size_t plan_memory_bytes(const struct plan *plan, size_t allocated_after) {
    const size_t one = host_memory_of_plan(plan), own = 2 * one + graph_bytes(plan->graph);
    const size_t opening = own + (1 + VERIFIER_FACTOR) * plans_at_once(&plan->layout) * one;
    return opening > own + allocated_after ? opening - allocated_after : own;
}

/* --- all ---*/

/* What was needed before the engine was opened counts as far as it exceeds what is allocated afterwards. */
static size_t program_bytes(const struct host_memory_facts *f, const struct plan *plan, size_t allocated_after) {
    const size_t opening = plan->layout.rank == 0 && !f->device && f->opening_bytes > allocated_after
                               ? f->opening_bytes - allocated_after
                               : 0;
    /* The program's own part has been measured with as many as the loader takes by itself. */
    const int workers = f->workers > LOADER_THREADS ? f->workers - LOADER_THREADS : 0;
    return f->program_bytes ? f->program_bytes + (size_t)(f->threads + workers) * THREAD_BYTES + opening : 0;
}

static void weigh(void *ctx, const struct plan *plan, struct host_memory *ret) {
    const struct host_memory_facts *f = ctx;
    const size_t world = (size_t)plan->layout.world_size;
    size_t *bytes = ret->bytes;
    bytes[HOST_SNAPSHOT] = f->checkpoints ? snapshot_bytes(plan, f->own) : 0;
    bytes[HOST_DATA] = f->data_bytes;
    bytes[HOST_BATCHES] = batch_bytes(f, plan);
    bytes[HOST_KERNELS] = kernels_bytes(f->kernels, plan);
    bytes[HOST_COMMUNICATION] = world > 1 ? COLLECTIVE_STAGING_BYTES + world * PEER_BYTES : 0;
    const size_t after = bytes[HOST_SNAPSHOT] + bytes[HOST_BATCHES] + bytes[HOST_KERNELS] +
                         (f->device ? 0 : plan_bytes(plan));
    bytes[HOST_PLANS] = plan_memory_bytes(plan, after);
    bytes[HOST_PROGRAM] = program_bytes(f, plan, after);
}

void host_memory_of_rank(const struct host_memory_rule *rule, const struct plan *plan, struct host_memory *ret) {
    struct host_memory_facts facts = *(const struct host_memory_facts *)rule->ctx;
    facts.own = true;
    weigh(&facts, plan, ret);
}

struct host_memory_rule host_memory_rule_of(const struct host_memory_facts *facts) {
    return (struct host_memory_rule){ .weigh = weigh,
                                      .ctx = (struct host_memory_facts *)(uintptr_t)facts,
                                      .limited = !facts->device };
}

/* --- what was used ---*/

/* "VmHWM:	   1234 kB" */
static int64_t line_bytes(const char *text, const char *name) {
    const char *line = strstr(text, name);
    return line ? strtoll(line + strlen(name), NULL, 10) * 1024 : 0;
}

status_t host_memory_measure(struct host_memory_used *ret, struct err *e) {
    static const char PATH[] = "/proc/self/status";
    char text[4096];
    CLEANUP(closep) int fd = open(PATH, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return err_errno(e, "read '%s'", PATH);
    text[n] = '\0';
    *ret = (struct host_memory_used){ .peak_bytes = line_bytes(text, "\nVmHWM:"),
                                      .anonymous_bytes = line_bytes(text, "\nRssAnon:"),
                                      .file_bytes = line_bytes(text, "\nRssFile:") };
    return ST_OK;
}
