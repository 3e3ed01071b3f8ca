/* What a device can do, as far as a plan's cost depends on it: a data file of share/profiles, or this machine's CPU
 * measured on the spot.
 *
 *     struct plan_profile profile;
 *     TRY(plan_profile_find("h200", &profile, e));          // a name of share/profiles, or the path of such a file
 *     TRY(plan_profile_measure(2, &profile, e));            // this CPU with two threads a rank; takes about 0.2 s
 *
 * A file of share/profiles (JSON) states the vendor's figures with their source; all of them are compiled in, so that a
 * program needs no file of its own. `reach` is the part of a figure that good code gets: the profile says where it
 * comes from. Units are FLOP/s, bytes/s, bytes and seconds. */
#ifndef ENGINE_PLAN_COST_PROFILE_H
#define ENGINE_PLAN_COST_PROFILE_H

#include "base/status.h"
#include "engine/graph/graph.h"

#include <stdbool.h>
#include <stddef.h>

enum { PROFILE_NAME = 32, PROFILE_DEVICE = 96, PROFILE_JSON_BYTES = 1 << 16 };

/* From one rank to another, in one direction. */
struct plan_link {
    double bytes_per_second, seconds; /* of a message: seconds + bytes / bytes_per_second */
};

struct plan_profile {
    char name[PROFILE_NAME];     /* "h200" */
    char device[PROFILE_DEVICE]; /* "NVIDIA H200 SXM" */
    char accelerator[8];         /* whose kernels run there, "cpu" or "cuda"; "": the file does not say */
    bool measured;               /* on this machine, just now */
    double product_flops[4];     /* [enum dtype] peak of matrix products; 0 = the device has none in this type */
    double product_reach;        /* of the peak, in large products */
    double memory_bytes_per_second, memory_reach;
    size_t memory_bytes;                     /* of the device; 0 = unknown */
    size_t allowance_bytes;                  /* what a process holds beside the arena: driver, libraries, code */
    double launch_seconds;                   /* a kernel that does nothing */
    int node_ranks;                          /* per node; ranks [k node_ranks, (k+1) node_ranks) are on node k */
    struct plan_link intra_node, inter_node; /* between ranks of one node, and of two; "near" and "far" in the file */
};

/* NOT_FOUND lists the names that exist; INVALID_ARGUMENT names the file's field. */
MUST_CHECK status_t plan_profile_find(const char *name_or_path, struct plan_profile *ret, struct err *e);
/* JSON text in the files' form; `where` begins the sentences of its errors. */
MUST_CHECK status_t plan_profile_parse(const char *where, const char *text, size_t n, struct plan_profile *ret,
                                       struct err *e);
/* Times products in fp32, bf16 and fp16, a copy that no cache holds, and a loopback connection. threads >= 1. */
MUST_CHECK status_t plan_profile_measure(int threads, struct plan_profile *ret, struct err *e);

/* The first of these alone: FLOP/s of products of this type. */
MUST_CHECK status_t plan_profile_measure_products(enum dtype type, int threads, double *ret, struct err *e);

/* Seconds of work that takes `flops` of matrix products of this type and moves `bytes`: the slower of both (the
 * roofline; Williams, Waterman and Patterson 2009), and a launch. */
double plan_profile_seconds(const struct plan_profile *p, enum dtype type, double flops, double bytes);
const struct plan_link *plan_profile_link(const struct plan_profile *p, int from, int to);

/* The files of share/profiles, as the build put them into the program. */
struct profile_text {
    const char *name, *json;
};
extern const struct profile_text PROFILE_TEXTS[];
extern const int N_PROFILE_TEXTS;

#endif
