/* gpu_layouts same | killed | repeat [DEVICE]: training on one GPU (DEVICE; cpu tries the program itself), with the
 * bits of one rank.
 *
 *   same     two and four processes with an NCCL_HOSTID each, which are then hosts to NCCL: data parallel, ZeRO 1 to 3,
 *            pipelines of each schedule
 *   killed   one of four ranks is killed -9 after a checkpoint; the others say so in time, and the job goes on from
 *            there to the bits of one that nobody disturbed
 *   repeat   the first step of a GPT 100 times, of a Llama, a vision transformer and a residual network, for which
 *            cuDNN compiles its kernels each time, 5 times: a whole engine each, fewer where that takes long.
 *            (test_models_pytorch repeats all of them with one table of kernels.)
 *
 * Exit: 0 as it should be, 1 with the reason on stderr, 77 no device. */
#include "tests/engine/trainee.h"

enum { NO_DEVICE = 77, TIMEOUT_MS = 60000, KNOWN_MS = 30000, REPEATS_TRIED = 3, REPEATS_MS = 20000 };

static const char *device = "cuda";

static int on_device(struct gang *g, int rank, struct collective *c) {
    const struct trainee *t = g->arg;
    char host[32];
    snprintf(host, sizeof host, "rank-%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    const int status = trainee_main(g, rank, c);
    g->failed_at_ms[rank] = clock_mono_ms();
    return t->results[rank].status == ST_FAILED_PRECONDITION ? NO_DEVICE : status;
}

/* False: not all ended with 0. ended (ranks): when. */
static bool train(struct trainee *t, const char *name, int64_t *ended) {
    struct engine_config *c = &t->config;
    trainee_fresh_directory(t, name);
    if (c->layout.pipeline <= 1)
        c->layout.data = t->ranks;
    c->checkpoint.directory = t->directory;
    c->checkpoint.resume_directory = *t->resume ? t->resume : NULL;
    memset(t->results, 0, GANG_RANKS * sizeof *t->results);
    struct gang *g = gang_start(t->ranks, t->timeout_ms, on_device, t);
    int bad = 0;
    for (int r = 0; r < t->ranks; r++) {
        const int status = gang_await(g, r);
        if (status == NO_DEVICE)
            exit((fprintf(stderr, "%s\n", t->results[r].message), NO_DEVICE));
        bad += status != 0;
        if (ended)
            ended[r] = g->failed_at_ms[r];
    }
    gang_free(g);
    return bad == 0;
}

/* "": it came to no end. */
static const char *sha_of(struct trainee *t, const char *name) {
    const int64_t begun = clock_mono_ms();
    if (!train(t, name, NULL) || t->results[0].outcome != ENGINE_FINISHED || t->results[0].status != ST_OK) {
        for (int r = 0; r < t->ranks; r++)
            fprintf(stderr, "%s, rank %d: %s\n", name, r, t->results[r].message);
        return "";
    }
    printf("%s: %.16s, %.1f s\n", name, t->results[0].weights_sha256, (double)(clock_mono_ms() - begun) / 1000);
    fflush(stdout);
    return t->results[0].weights_sha256;
}

static struct trainee *gpt_new(void) {
    struct trainee *t = trainee_new();
    t->timeout_ms = TIMEOUT_MS;
    t->config.device = device;
    t->config.model.gpt = (struct gpt_shape){ .layers = 4, .heads = 2, .width = 32, .context = 16, .dropout = 0.1 };
    return t;
}

/* --- same ---*/

struct layout {
    const char *name;
    struct engine_layout layout;
};

static const struct layout LAYOUTS[] = {
    { "data 2", { .data = 2, .pipeline = 1 } },
    { "data 4, ZeRO-1", { .data = 4, .pipeline = 1, .zero = 1 } },
    { "data 2, ZeRO-2", { .data = 2, .pipeline = 1, .zero = 2 } },
    { "data 4, ZeRO-3", { .data = 4, .pipeline = 1, .zero = 3 } },
    { "pipeline 2", { .data = 1, .pipeline = 2, .virtual_stages = 1 } },
    { "pipeline 4, zero bubble", { .data = 1, .pipeline = 4, .schedule = &schedule_zero_bubble, .virtual_stages = 1 } },
    { "data 2, pipeline 2, interleaved",
      { .data = 2, .pipeline = 2, .schedule = &schedule_interleaved, .virtual_stages = 2 } },
    { "data 4", { .data = 4, .pipeline = 1 } },
};

static int same(void) {
    struct trainee *t = gpt_new();
    char alone[ENGINE_SHA256_HEX];
    int bad = 0;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH; /* what ZeRO 2 and 3 do */
    snprintf(alone, sizeof alone, "%s", sha_of(t, "one rank"));
    if (!*alone)
        return 1;
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++) {
        t->config.layout = LAYOUTS[i].layout;
        t->ranks = engine_ranks(&t->config.layout);
        bad += strcmp(sha_of(t, LAYOUTS[i].name), alone) != 0;
    }
    trainee_free(t);
    if (bad)
        return fprintf(stderr, "%d layouts of %zu have not the bits of one rank\n", bad,
                       sizeof LAYOUTS / sizeof *LAYOUTS),
               1;
    printf("%zu layouts of 2 and 4 ranks have the bits of one\n", sizeof LAYOUTS / sizeof *LAYOUTS);
    return 0;
}

/* --- killed ---*/

static int killed(void) {
    enum { RANKS = 4, VICTIM = 1, STEP = 4, SAVED = 2 }; /* after step 3 all have waited for the checkpoint of step 2 */
    struct trainee *t = gpt_new();
    char undisturbed[ENGINE_SHA256_HEX];
    int64_t ended[RANKS], latest = 0;
    bool named = false;
    t->every_other = true;
    t->config.checkpoint.every = SAVED;
    t->config.train.steps = 6;
    snprintf(undisturbed, sizeof undisturbed, "%s", sha_of(t, "undisturbed"));
    if (!*undisturbed)
        return 1;
    t->ranks = RANKS;
    t->config.layout.data = RANKS;
    t->stop_rank = VICTIM;
    t->stop_step = STEP;
    t->die = true;
    (void)train(t, "killed", ended);
    for (int r = 0; r < RANKS; r++) {
        const struct trainee_result *told = &t->results[r];
        const int64_t after = ended[r] - t->results[VICTIM].killed_at_ms;
        if (r == VICTIM)
            continue;
        if (told->outcome != ENGINE_PEER_LOST)
            return fprintf(stderr, "rank %d: not told that a peer was lost: %s\n", r, told->message), 1;
        printf("rank %d, %lld ms after the kill: %s\n", r, (long long)after, told->message);
        latest = after > latest ? after : latest;
        named = named || strstr(told->message, "rank 1 ");
    }
    if (!named) /* the first that knows names the cause, the others may name its echo */
        return fprintf(stderr, "nobody named rank %d\n", VICTIM), 1;
    if (latest > KNOWN_MS)
        return fprintf(stderr, "a rank knew %lld ms after the kill\n", (long long)latest), 1;
    snprintf(t->resume, sizeof t->resume, "%.200s/step-%d", t->directory, SAVED);
    t->stop_step = 0;
    const bool as_undisturbed = strcmp(sha_of(t, "resumed"), undisturbed) == 0;
    if (!as_undisturbed || t->results[0].from_step != SAVED)
        return fprintf(stderr, "resumed from step %lld, with other bits\n", (long long)t->results[0].from_step), 1;
    printf("all knew %lld ms after the kill; resumed from step %d to the same bits\n", (long long)latest, SAVED);
    trainee_free(t);
    return 0;
}

/* --- repeat ---*/

static void as_gpt(struct trainee *t) {
    t->config.model.gpt = (struct gpt_shape){ .layers = 2, .heads = 2, .width = 128, .context = 128, .dropout = 0.1 };
}

static void as_llama(struct trainee *t) {
    t->config.model = (struct model_config){ .kind = &model_llama,
                                             .llama = { .layers = 2,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .width = 256,
                                                        .context = 128,
                                                        .hidden = 704,
                                                        .rope_theta = 1e4,
                                                        .norm_eps = 1e-5 } };
}

static void as_vit(struct trainee *t) {
    t->config.model = (struct model_config){
        .kind = &model_vit, .vit = { .layers = 2, .heads = 2, .width = 128, .patch = 2, .hidden = 512 }
    };
    trainee_images(t);
}

static void as_resnet(struct trainee *t) {
    t->config.model = (struct model_config){ .kind = &model_resnet, .resnet = { .layers = 50, .width = 16 } };
    trainee_images(t);
}

static int times;

/* One process: what the library keeps between runs is part of the question. */
static int repeats(struct gang *g, int rank, struct collective *c) {
    (void)c;
    struct trainee *t = g->arg;
    char first[ENGINE_SHA256_HEX] = "";
    const int64_t until = clock_mono_ms() + REPEATS_MS;
    for (int i = 0; i < times && (i < 2 || clock_mono_ms() < until); i++) {
        struct collective *alone = NULL;
        struct err e = { "" };
        if (collective_open_alone(&alone, &e) != ST_OK)
            return fprintf(stderr, "%s\n", e.msg), 1;
        const int status = trainee_main(g, rank, alone);
        collective_close(alone);
        const struct trainee_result *r = &t->results[0];
        if (r->status == ST_FAILED_PRECONDITION)
            return NO_DEVICE;
        if (status != 0 || r->status != ST_OK)
            return fprintf(stderr, "%s\n", r->message), 1;
        if (i == 0)
            snprintf(first, sizeof first, "%s", r->weights_sha256);
        if (strcmp(first, r->weights_sha256) != 0)
            return fprintf(stderr, "repeat %d has other bits\n", i + 1), 1;
        g->progress[0] = i + 1;
    }
    return 0;
}

static int repeat(void) {
    static const struct {
        const char *name;
        void (*as)(struct trainee *t);
        int times;
    } MODELS[] = {
        { "GPT", as_gpt, 100 },
        { "Llama", as_llama, 5 },
        { "vision transformer", as_vit, 5 },
        { "ResNet-50", as_resnet, 5 },
    };
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        struct trainee *t = gpt_new();
        MODELS[i].as(t);
        times = strcmp(device, "cuda") == 0 ? MODELS[i].times : REPEATS_TRIED;
        t->config.train.precision = ENGINE_BF16;
        t->config.train.steps = 1;
        t->config.train.schedule.warmup_steps = 0;
        t->config.train.eval.every = 0;
        t->config.layout.data = 1;
        t->config.checkpoint.directory = t->directory;
        const int64_t begun = clock_mono_ms();
        struct gang *g = gang_start(1, t->timeout_ms, repeats, t);
        const int status = gang_await(g, 0), done = (int)g->progress[0];
        gang_free(g);
        trainee_free(t);
        if (status != 0)
            return fprintf(stderr, "%s: exit %d\n", MODELS[i].name, status), status;
        printf("%s: %d times, %.1f s\n", MODELS[i].name, done, (double)(clock_mono_ms() - begun) / 1000);
    }
    printf("each first step the same to the bit\n");
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } PARTS[] = { { "same", same }, { "killed", killed }, { "repeat", repeat } };
    device = argc > 2 ? argv[2] : device;
    for (size_t i = 0; argc > 1 && i < sizeof PARTS / sizeof *PARTS; i++)
        if (strcmp(argv[1], PARTS[i].name) == 0)
            return PARTS[i].run();
    return fprintf(stderr, "usage: gpu_layouts same | killed | repeat [DEVICE]\n"), 2;
}
