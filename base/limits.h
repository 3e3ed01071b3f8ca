/* The limits that several folders use, with unit and reason. A limit that only one file needs is in that file. Changing
 * a limit changes behaviour: mention it in the commit. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* RPC: control messages are small, senders divide bulk data; 4 MiB is also what every gRPC client allows by default.
 */
#define LIMIT_RPC_MESSAGE_BYTES (4 << 20)
/* Decoding amplifies (4 MiB of empty map entries decode into 223 MiB): one message may allocate this much. */
#define LIMIT_RPC_DECODE_BYTES (32 << 20)
/* A job spec as text: real ones have a few KiB. */
#define LIMIT_SPEC_BYTES (256 << 10)
#define LIMIT_SPEC_DEPTH 16
/* Lanes that a job gets by default: more would only cost buffers. A layout can have as many data-parallel ranks. */
#define LIMIT_DEFAULT_LANES 8
/* Tokens of a language model's default micro-batch, at least: with fewer, reading the weights and adding the gradients
 * costs more than some percent of a step (./dev bench defaults). */
#define LIMIT_MICRO_BATCH_TOKENS 2048
/* Ranks in one gang. A placement row, a rendezvous address and a report stream exist for each. */
#define LIMIT_WORLD_SIZE 1024
/* Cores that the ranks of an executor share, and threads of one rank. */
#define LIMIT_CORES 1024
/* Virtual stages of one rank of a pipeline: the engine keeps a list of phases and buffers for each. */
#define LIMIT_VIRTUAL_STAGES 16
/* One record from a worker to its agent; log lines are cut to LIMIT_LOG_LINE_BYTES before. */
#define LIMIT_RECORD_BYTES   (256 << 10)
#define LIMIT_LOG_LINE_BYTES (16 << 10)
/* Records of one batch of reports: the controller decodes all records of a batch at once. */
#define LIMIT_BATCH_RECORDS 4096
/* A rank's rendezvous address. Those of the largest gang fit into one message (engine/collective/address_list.h). */
#define LIMIT_RENDEZVOUS_BYTES (3 << 10)
/* A metric's name. */
#define LIMIT_METRIC_NAME_BYTES 64
/* An archive of a program's code, its files and the depth of its folders: a source tree is much smaller, data and
 * environments are not code. A chunk is a message and a row. */
#define LIMIT_CODE_BYTES       (512LL << 20)
#define LIMIT_CODE_CHUNK_BYTES (1 << 20)
#define LIMIT_CODE_FILES       65536
#define LIMIT_CODE_DEPTH       64
/* Objects that the URIs of one job stand for, patterns included. */
#define LIMIT_DATA_OBJECTS 65536
/* The value of a secret: a certificate with its key is smaller, and Linux limits a variable to 128 KiB. The values that
 * one job gets, together: they are part of its start order. */
#define LIMIT_SECRET_BYTES      (64 << 10)
#define LIMIT_JOB_SECRETS_BYTES (1 << 20)

/* A page of a List call. */
#define LIMIT_PAGE_SIZE   1000
#define DEFAULT_PAGE_SIZE 100

/* The lowest compute capability that jobs on NVIDIA GPUs need, 10 * major + minor: the first with products of bf16. */
#define LIMIT_MIN_CUDA_CAPABILITY 80

/* Liveness: an agent sends every 2 s and is lost after 10 s. A rank that gives no sign of life for 30 s hangs; one that
 * lives and makes no progress is judged 2 s later, since it may only wait for a silent one. */
#define HEARTBEAT_INTERVAL_MS 2000
#define LEASE_TTL_MS          10000
#define HANG_TIMEOUT_MS       30000
#define HANG_WAITING_MS       2000
/* Redial: gRPC's own backoff grows to 120 s, longer than a lease. */
#define REDIAL_FIRST_MS    100
#define REDIAL_MAX_MS      2000
#define CONNECT_TIMEOUT_MS 2000
/* A unary call without a deadline of its own gets this one. */
#define UNARY_DEADLINE_MS 30000

#endif
