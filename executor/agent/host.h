/* The objects that every part of the agent uses: the options, the host's resources, the event loop, and the agent's
 * files.
 *
 * The thread of the loop (reactor.h) uses them without locks. */
#ifndef EXECUTOR_AGENT_HOST_H
#define EXECUTOR_AGENT_HOST_H

#include "api/rpc/tls.h"
#include "base/status.h"
#include "executor/agent/directory.h"
#include "executor/agent/handover.h"
#include "executor/agent/inventory.h"
#include "executor/agent/peaks.h"
#include "executor/agent/reactor.h"
#include "executor/agent/spool.h"
#include "executor/sandbox/mode.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { AGENT_PATHS_MAX = 64 }; /* of each list of paths below */
enum { HOST_URL_BYTES = 280, HOST_TOKEN_BYTES = 65, HOST_PIN_BYTES = 48 };

struct agent_options {
    const char *controller; /* as api/rpc reads an address */
    struct rpc_tls tls;
    const char *token, *token_file; /* or NULL */
    const char *directory;
    const char *address;                 /* at which other hosts reach this host's ranks */
    const char *worker;                  /* path of the worker program */
    const char *program;                 /* path of the program that is the worker of jobs with a program */
    const char *code;                    /* path of the program that fetches their code */
    const char *environment;             /* path of the program that builds their Python environments */
    const char *data;                    /* path of the program that copies remote data */
    bool allow_programs;                 /* jobs may run programs of their users */
    const char *worker_user;             /* the user that workers become; NULL: the agent's own */
    uid_t job_user_first, job_user_last; /* a user for each job (job_user.h); last 0: none */
    enum sandbox_mode sandbox;
    const char *const *writable_roots; /* below which programs in a sandbox may write, too */
    size_t n_writable_roots;
    const char *nvml; /* name of the library */
    struct nvml_part gpu_part;
    const char *library_path;      /* DIR[:DIR]..., searched first by workers on GPUs; NULL: the loader's path alone */
    const char *const *data_roots; /* empty list: jobs read no file */
    size_t n_data_roots;
    const char *const *data_except; /* files and folders that no job reads, besides the agent's own */
    size_t n_data_except;
    const char *const *checkpoint_roots; /* every checkpoint of a job lies below one of these; at least one */
    size_t n_checkpoint_roots;
    int cores, slots; /* 0: as inventory_take finds them */
    int64_t spool_bytes;
    int64_t code_cache_bytes;
    int64_t memory_bytes;          /* of all ranks; 0: cgroups.h chooses */
    int64_t processes_max;         /* of a rank */
    const char *environment_cache; /* NULL: below the directory */
    int64_t environment_cache_bytes;
    int environment_limit_s;      /* for a build */
    const char *data_cache;       /* of copies of remote data; NULL: below the directory */
    int64_t data_cache_bytes;     /* 0: none are kept, and no job with such data runs here */
    const char *token_cache;      /* of the tokens of texts; NULL: below the directory */
    int64_t token_cache_bytes;    /* 0: each rank encodes its texts */
    const char *cache_listen;     /* host:port at which other hosts read copies of data; NULL: they do not */
    const char *environment_user; /* the user that builds; NULL: the worker_user, or else the agent's own */
    int hang_ms; /* a rank is killed after this time without a sign of life, or HANG_WAITING_MS more without progress */
};

struct cgroups;

/* As CachePeer of worker.proto; url "": the cache is not served. */
struct cache_offer {
    char url[HOST_URL_BYTES], token[HOST_TOKEN_BYTES], key[HOST_PIN_BYTES];
};

struct host {
    const struct agent_options *options;
    struct inventory inventory;
    struct reactor *loop;
    struct directory *directory;
    struct spool *spool;
    struct peaks *peaks;
    struct orphans *orphans;
    struct cgroups *cgroups;    /* of the ranks and requests */
    struct err no_images;       /* why programs with an image cannot run here; empty: they can */
    struct err no_data;         /* why jobs with remote data cannot run here; empty: they can */
    char data_cache[PATH_MAX];  /* the folder of their copies */
    char token_cache[PATH_MAX]; /* the folder of tokens; empty: none */
    struct cache_offer cache_offer;
    const Trainyard__Handover__Handover *handed; /* what was handed over to this program; NULL: nothing */
};

#endif
