#include "executor/agent/core/cpu_sets.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <assert.h>
#include <stdlib.h>

struct core {
    int number;
    struct node *node;
    bool taken;
};

struct node {
    int number, free; /* free: cores that no rank has */
};

struct cores {
    const struct cpu *cpus;
    int n_cpus;
    struct core *items;
    int n;
    struct node *nodes;
    int n_nodes, free;
};

static struct node *node_of(struct cores *c, int number) {
    for (int i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].number == number)
            return &c->nodes[i];
    c->nodes[c->n_nodes] = (struct node){ .number = number };
    return &c->nodes[c->n_nodes++];
}

static void add_core(const struct cores *c, const struct core *core, struct cpu_mask *to) {
    for (int i = 0; i < c->n_cpus; i++)
        if (c->cpus[i].core == core->number)
            cpu_mask_add(to, c->cpus[i].number);
}

/* Takes up to `want` free cores of a node; returns how many. */
static int take(struct cores *c, struct node *node, int want, struct cpu_mask *to) {
    int got = 0;
    for (int i = 0; i < c->n && got < want; i++) {
        if (c->items[i].taken || c->items[i].node != node)
            continue;
        c->items[i].taken = true;
        add_core(c, &c->items[i], to);
        got++;
    }
    node->free -= got;
    c->free -= got;
    return got;
}

/* The node with the fewest free cores of those that have so many; NULL: none has. */
static struct node *node_that_fits(const struct cores *c, int want) {
    struct node *best = NULL;
    for (int i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].free >= want && (!best || c->nodes[i].free < best->free))
            best = &c->nodes[i];
    return best;
}

static struct node *emptiest_node(const struct cores *c) {
    struct node *best = &c->nodes[0];
    for (int i = 1; i < c->n_nodes; i++)
        if (c->nodes[i].free > best->free)
            best = &c->nodes[i];
    return best;
}

static void place(struct cores *c, struct cpu_set_wish *rank) {
    if (c->free < rank->threads) {
        for (int i = 0; i < c->n_cpus; i++)
            cpu_mask_add(&rank->ret, c->cpus[i].number);
        return;
    }
    struct node *node = node_that_fits(c, rank->threads);
    for (int left = rank->threads; left > 0;)
        left -= take(c, node ? node : emptiest_node(c), left, &rank->ret);
}

/* Whether a rank runs on a CPU of the node. */
static bool is_on(const struct cores *c, const struct cpu_set_wish *rank, int node) {
    for (int i = 0; i < c->n_cpus; i++)
        if (c->cpus[i].node == node && cpu_mask_has(&rank->ret, c->cpus[i].number))
            return true;
    return false;
}

static void add_spare_cores(const struct cores *c, struct cpu_set_wish *ranks, size_t n_ranks) {
    for (int node = 0; node < c->n_nodes; node++)
        for (size_t r = 0; r < n_ranks && c->nodes[node].free > 0; r++) {
            if (!is_on(c, &ranks[r], c->nodes[node].number))
                continue;
            for (int i = 0; i < c->n; i++)
                if (!c->items[i].taken && c->items[i].node == &c->nodes[node])
                    add_core(c, &c->items[i], &ranks[r].ret);
        }
}

void cpu_sets_fill(const struct cpu *cpus, int n, struct cpu_set_wish *ranks, size_t n_ranks) {
    CLEANUP(freep) struct core *items = alloc_zeroed((size_t)n + 1, sizeof *items);
    CLEANUP(freep) struct node *nodes = alloc_zeroed((size_t)n + 1, sizeof *nodes);
    struct cores c = { .cpus = cpus, .n_cpus = n, .items = items, .nodes = nodes };
    for (int i = 0; i < n; i++) {
        if (cpus[i].core != cpus[i].number)
            continue;
        items[c.n] = (struct core){ .number = cpus[i].number, .node = node_of(&c, cpus[i].node) };
        items[c.n++].node->free++;
        c.free++;
    }
    for (size_t r = 0; r < n_ranks; r++) {
        assert(ranks[r].threads > 0);
        ranks[r].ret = (struct cpu_mask){ { 0 } };
        place(&c, &ranks[r]);
    }
    add_spare_cores(&c, ranks, n_ranks);
}
