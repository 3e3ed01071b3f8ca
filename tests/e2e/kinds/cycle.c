/* A data kind that test_new_kinds.py adds to a copy of the tree: the tokens 0, 1, ..., period - 1, again and again. */
#include "engine/data/source_kind.h"
#include "engine/data/windows.h"

enum { CYCLE_TOKENS = 4096 };

struct cycle_settings {
    int period;
};

static status_t read_cycle(const void *ctx, enum source_split split, int64_t start, int n, int32_t *tokens,
                           struct err *e) {
    const struct cycle_settings *s = ctx;
    (void)split, (void)e;
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)((start + i) % s->period);
    return ST_OK;
}

static void close_cycle(void *ctx) { (void)ctx; }

/* The settings live as long as the job. */
static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    const struct token_store store = { .ctx = (void *)config->settings,
                                       .tokens = { CYCLE_TOKENS, 0 },
                                       .vocabulary = ((const struct cycle_settings *)config->settings)->period,
                                       .sha256 = "",
                                       .read = read_cycle,
                                       .close = close_cycle };
    return windows_open(&store, options->context, ret, e);
}

static const struct member MEMBERS[] = { MEMBER_INT(struct cycle_settings, period) };

const struct data_kind data_cycle = {
    .name = "cycle", .members = MEMBERS, .n_members = sizeof MEMBERS / sizeof *MEMBERS, .open = open_source
};
