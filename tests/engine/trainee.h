/* Runs the engine in forked processes over real Gloo, for tests: trains a small GPT on a small text, and collects the
 * results of every rank. */
#ifndef TESTS_ENGINE_TRAINEE_H
#define TESTS_ENGINE_TRAINEE_H

#include "base/file.h"
#include "engine/run/engine.h"
#include "engine/run/engine_state.h"
#include "engine/run/snapshot.h"
#include "tests/engine/gang.h"

#include <math.h>
#include <signal.h>

enum { TRAINEE_STEPS = 64, TRAINEE_NOTICES = 16 };

struct trainee_result {
    status_t status;
    enum engine_outcome outcome;
    int64_t killed_at_ms; /* 0 = not killed */
    char message[480];
    int64_t from_step, step;
    int micro_batch;                              /* the value that replaced `auto` */
    int progress_calls, progress_calls_resolving; /* calls in all; calls until `auto` was resolved */
    double loss[TRAINEE_STEPS], grad_norm[TRAINEE_STEPS], validation_loss; /* by step, from 1; rank 0 */
    int rows[TRAINEE_STEPS];                                               /* metric rows of the gang for this step */
    char numerics_id[240], weights_sha256[ENGINE_SHA256_HEX];
    char step_sha256[TRAINEE_STEPS][ENGINE_SHA256_HEX]; /* of the steps with a checkpoint */
    int threads[TRAINEE_STEPS];                         /* reported after this step; 0 = not reported */
    double memory_bytes[TRAINEE_STEPS];                 /* by step: the anonymous memory of this rank's process */
    double skipped[TRAINEE_STEPS], loss_scale[TRAINEE_STEPS], accuracy;
    double average_loss[TRAINEE_STEPS], weights_loss[TRAINEE_STEPS], average_accuracy; /* of evaluations */
    double mfu[TRAINEE_STEPS], seconds[TRAINEE_STEPS], communication_wait[TRAINEE_STEPS];
    double squares[TRAINEE_STEPS]; /* sum of the squares of all grad_norm/NAME of a step; their number: */
    int inspected[TRAINEE_STEPS];
    int shards, notices;
    double shard_loss; /* the validation loss in the report of the newest shard */
    char notice[TRAINEE_NOTICES][32];
};

struct trainee_child;

struct trainee {
    struct engine_config config;
    int ranks, threads, timeout_ms;
    bool commit;         /* notify the engine at once that a written checkpoint is committed */
    bool every_other;    /* checkpoints of every second step, none skipped: the step loop waits for each */
    int64_t odd_memory;  /* memory_bytes of odd ranks; 0 = that of all */
    int odd_micro_batch; /* micro_batch of odd ranks; 0 = that of all */
    int64_t odd_bucket;  /* bucket_bytes of odd ranks; 0 = those of all */
    int odd_threads;     /* threads of odd ranks; 0 = those of all */
    int stop_rank;       /* the rank that asks for a stop ... */
    int64_t stop_step;   /* ... when it has done this step; 0 = never */
    bool die;            /* the rank is killed instead */
    void (*ended)(struct trainee_child *c,
                  int64_t step); /* called by each rank when it has joined or done a step; or NULL */
    char text[256], directory[256], resume[256];
    struct trainee_result *results; /* [ranks], shared with the children */
};

struct trainee_child {
    const struct trainee *trainee;
    struct trainee_result *result;
    struct engine *engine;
    struct gang *gang;
    int rank;
};

static inline void trainee_joined(void *ctx, int64_t from_step, const char *numerics_id) {
    struct trainee_child *c = ctx;
    c->result->from_step = from_step;
    snprintf(c->result->numerics_id, sizeof c->result->numerics_id, "%s", numerics_id);
    if (c->trainee->ended)
        c->trainee->ended(c, from_step);
}

/* The anonymous memory of this process, in bytes. */
static inline double trainee_anonymous_bytes(void) {
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lf kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

static inline void trainee_metrics(void *ctx, int64_t step, bool per_rank, const struct engine_metric *m, int n) {
    struct trainee_child *c = ctx;
    if (step == c->trainee->stop_step && c->rank == c->trainee->stop_rank) {
        if (c->trainee->die) {
            c->result->killed_at_ms = clock_mono_ms();
            raise(SIGKILL);
        }
        engine_stop_request(c->engine);
    }
    if (step >= TRAINEE_STEPS)
        return;
    if (per_rank && c->trainee->every_other && step % 2 == 1)
        status_ignore(snapshot_wait(c->engine->snapshot, NULL)); /* a notice reports a failure */
    if (per_rank) {
        c->result->memory_bytes[step] = trainee_anonymous_bytes();
        for (int i = 0; i < n; i++)
            if (strcmp(m[i].name, "communication_wait_seconds") == 0)
                c->result->communication_wait[step] = m[i].value;
        if (c->trainee->ended)
            c->trainee->ended(c, step);
        return;
    }
    c->result->rows[step]++;
    for (int i = 0; i < n; i++) {
        if (strcmp(m[i].name, "loss") == 0)
            c->result->loss[step] = m[i].value;
        if (strcmp(m[i].name, "mfu") == 0)
            c->result->mfu[step] = m[i].value;
        if (strcmp(m[i].name, "step_seconds") == 0)
            c->result->seconds[step] = m[i].value;
        if (strcmp(m[i].name, "grad_norm") == 0)
            c->result->grad_norm[step] = m[i].value;
        if (strcmp(m[i].name, "validation_loss") == 0)
            c->result->weights_loss[step] = c->result->validation_loss = m[i].value;
        if (strcmp(m[i].name, "ema_validation_loss") == 0)
            c->result->average_loss[step] = m[i].value;
        if (strcmp(m[i].name, "ema_validation_accuracy") == 0)
            c->result->average_accuracy = m[i].value;
        if (strcmp(m[i].name, "validation_accuracy") == 0)
            c->result->accuracy = m[i].value;
        if (strcmp(m[i].name, "skipped_steps") == 0)
            c->result->skipped[step] = m[i].value;
        if (strcmp(m[i].name, "loss_scale") == 0)
            c->result->loss_scale[step] = m[i].value;
        if (strncmp(m[i].name, "grad_norm/", 10) == 0) {
            c->result->squares[step] += m[i].value * m[i].value;
            c->result->inspected[step]++;
        }
    }
}

static inline void trainee_notice(void *ctx, const char *kind, const char *message, int64_t step) {
    (void)message, (void)step;
    struct trainee_child *c = ctx;
    if (c->result->notices < TRAINEE_NOTICES)
        snprintf(c->result->notice[c->result->notices++], sizeof c->result->notice[0], "%s", kind);
}

static inline void trainee_progress(void *ctx) { ((struct trainee_child *)ctx)->result->progress_calls++; }

static inline void trainee_shard(void *ctx, const struct engine_shard *shard) {
    struct trainee_child *c = ctx;
    c->result->shards++;
    c->result->shard_loss = shard->has_validation_loss ? shard->validation_loss : NAN;
    if (shard->step < TRAINEE_STEPS)
        snprintf(c->result->step_sha256[shard->step], ENGINE_SHA256_HEX, "%s", shard->weights_sha256);
    if (c->trainee->commit)
        engine_checkpoint_committed(c->engine, shard->step);
}

static inline void trainee_team(void *ctx, int threads, int64_t step) {
    struct trainee_child *c = ctx;
    if (step < TRAINEE_STEPS)
        c->result->threads[step] = threads;
}

static inline int trainee_threads(int threads) {
#ifdef __SANITIZE_THREAD__
    return threads ? 1 : 0; /* libgomp's barriers are not instrumented */
#else
    return threads;
#endif
}

static inline int trainee_main(struct gang *gang, int rank, struct collective *collective) {
    const struct trainee *t = gang->arg;
    struct trainee_child child = { .trainee = t, .result = &t->results[rank], .gang = gang, .rank = rank };
    struct engine_hooks hooks = { .ctx = &child,
                                  .joined = trainee_joined,
                                  .metrics = trainee_metrics,
                                  .notice = trainee_notice,
                                  .shard = trainee_shard,
                                  .threads = trainee_team,
                                  .progress = trainee_progress };
    struct engine_config config = t->config;
    config.threads = trainee_threads(t->odd_threads && rank % 2 == 1 ? t->odd_threads : t->threads);
    if (t->odd_micro_batch && rank % 2 == 1)
        config.train.micro_batch = t->odd_micro_batch;
    if (t->odd_memory && rank % 2 == 1)
        config.memory_bytes = t->odd_memory;
    if (t->odd_bucket && rank % 2 == 1)
        config.bucket_bytes = t->odd_bucket;
    struct err e = { "" };
    struct trainee_result *r = child.result;
    /* A rank that refuses its configuration closes its connections. It must not do so before the other ranks have
     * connected, or while another rank is in a call that a closed connection would end. */
    pthread_barrier_wait(&gang->met);
    if (config.train.micro_batch == 0)
        r->status = engine_resolve(&config, collective, &hooks, &e);
    r->micro_batch = config.train.micro_batch;
    r->progress_calls_resolving = r->progress_calls;
    if (r->status == ST_OK)
        r->status = engine_open(&config, collective, &hooks, &child.engine, &e);
    r->outcome = engine_outcome_of(r->status);
    if (r->status == ST_OK) {
        r->status = engine_run(child.engine, &r->outcome, &e);
        r->step = engine_step(child.engine);
        snprintf(r->weights_sha256, sizeof r->weights_sha256, "%s", engine_weights_sha256(child.engine));
        child.engine = engine_close(child.engine);
    }
    snprintf(r->message, sizeof r->message, "%s", e.msg);
    return 0;
}

/* Clears the results of the run before, and runs. Returns the number of ranks that did not exit with 0. */
static inline int trainee_run(struct trainee *t) {
    if (t->config.layout.pipeline <= 1)
        t->config.layout.data = t->ranks;
    if (t->every_other)
        t->config.checkpoint.every = 2;
    t->config.checkpoint.directory = *t->directory ? t->directory : NULL;
    t->config.checkpoint.resume_directory = *t->resume ? t->resume : NULL;
    memset(t->results, 0, GANG_RANKS * sizeof *t->results);
    return gang_end(gang_start(t->ranks, t->timeout_ms, trainee_main, t));
}

/* Writes a text with structure: a counter in words. Called once per folder. */
static inline void trainee_write_text(const char *path, int lines) {
    static const char *const digit[] = {
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
    };
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    for (int i = 0; i < lines; i++)
        fprintf(f, "%s %s %s: %d is a number, and the next one follows.\n", digit[i / 100 % 10], digit[i / 10 % 10],
                digit[i % 10], i);
    fclose(f);
}

/* A trainee in a fresh temporary folder. */
static inline struct trainee *trainee_new(void) {
    static const char *files[1];
    struct trainee *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct trainee_result *results = mmap(NULL, GANG_RANKS * sizeof *results, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char root[] = "/tmp/trainyard-engine-XXXXXX";
    if (t == MAP_FAILED || results == MAP_FAILED || !mkdtemp(root))
        abort();
    *t = (struct trainee){ .ranks = 1, .threads = 1, .timeout_ms = 60000, .commit = true, .results = results };
    snprintf(t->text, sizeof t->text, "%s/text", root);
    snprintf(t->directory, sizeof t->directory, "%s/checkpoints", root);
    trainee_write_text(t->text, 300);
    files[0] = t->text;
    t->config = (struct engine_config){
        .model = { .kind = &model_gpt, .gpt = { .layers = 2, .heads = 2, .width = 32, .context = 16, .dropout = 0.1 } },
        .data = { .kind = &data_text,
                  .text = { .files = files, .n_files = 1, .tokenizer = "char", .validation_fraction = 0.1 } },
        .train = { .steps = 4,
                   .global_batch = 16,
                   .micro_batch = 2,
                   .lanes = 4,
                   .seed = 7,
                   .clip_norm = 1,
                   .optimizer = { .kind = &optimizer_adamw,
                                  .adamw = { .lr = 1e-2,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1 } },
                   .schedule = { .kind = &rate_cosine, .warmup_steps = 2, .min_lr = 1e-3 },
                   .eval = { .every = 2, .batches = 2 } },
        .device = "cpu",
        .threads = 1,
        .bucket_bytes = 16384,
    };
    return t;
}

static inline void trainee_free(struct trainee *t) {
    *strrchr(t->text, '/') = 0;
    status_ignore(dir_remove(t->text, NULL));
    munmap(t->results, GANG_RANKS * sizeof *t->results);
    munmap(t, sizeof *t);
}

static inline void trainee_put_big_endian(FILE *f, uint32_t x) {
    for (int i = 3; i >= 0; i--)
        fputc((int)(x >> 8 * i & 255), f);
}

/* Squares of noise, 16 pixels wide, in idx files like MNIST's. The label is the index of the brightest quarter. */
static inline void trainee_images(struct trainee *t) {
    static char images[300], labels[300];
    enum { N = 64, SIDE = 16 };
    uint32_t state = 12345;
    *strrchr(t->text, '/') = 0;
    snprintf(images, sizeof images, "%s/images", t->text);
    snprintf(labels, sizeof labels, "%s/labels", t->text);
    strcat(t->text, "/text");
    FILE *i = fopen(images, "w"), *l = fopen(labels, "w");
    if (!i || !l)
        abort();
    trainee_put_big_endian(i, 0x803), trainee_put_big_endian(i, N), trainee_put_big_endian(i, SIDE),
        trainee_put_big_endian(i, SIDE);
    trainee_put_big_endian(l, 0x801), trainee_put_big_endian(l, N);
    for (int k = 0; k < N; k++) {
        int label = k % 4;
        fputc(label, l);
        for (int p = 0; p < SIDE * SIDE; p++) {
            bool bright = (p / SIDE < SIDE / 2) == (label < 2) && (p % SIDE < SIDE / 2) == (label % 2 == 0);
            state = state * 1664525 + 1013904223;
            fputc((int)(state >> 25) + 100 * bright, i);
        }
    }
    fclose(i);
    fclose(l);
    t->config.data = (struct data_config){ .kind = &data_idx,
                                           .idx = { .train_images = images,
                                                    .train_labels = labels,
                                                    .validation_images = images,
                                                    .validation_labels = labels,
                                                    .augment = { .crop_padding = 2, .flip = true } } };
}

/* A fresh folder for the next run's checkpoints. */
static inline void trainee_fresh_directory(struct trainee *t, const char *name) {
    *strrchr(t->directory, '/') = 0;
    size_t n = strlen(t->directory);
    snprintf(t->directory + n, sizeof t->directory - n, "/%s", name);
}

#endif
