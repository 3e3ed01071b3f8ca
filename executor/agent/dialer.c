#include "executor/agent/dialer.h"

static status_t channel_open(const struct agent_options *o, struct rpc_channel **ret, struct err *e) {
    const struct rpc_channel_config config = {
        .address = o->controller, .tls = o->tls, .token = o->token, .token_file = o->token_file
    };
    return rpc_channel_open(&config, ret, e);
}

status_t dialer_open(struct dialer *d, const struct agent_options *options, struct err *e) {
    *d = (struct dialer){ .options = options };
    return channel_open(options, &d->now, e);
}

void dialer_close(struct dialer *d) {
    while (d->n_old > 0)
        rpc_channel_close(d->old[--d->n_old]);
    d->next = rpc_channel_close(d->next);
    d->now = rpc_channel_close(d->now);
}

status_t dialer_reload(struct dialer *d, struct err *e) {
    struct rpc_channel *fresh;
    TRY(channel_open(d->options, &fresh, e));
    rpc_channel_close(d->next); /* no stream has used it */
    d->next = fresh;
    return ST_OK;
}

/* A channel with a call cannot be closed here, because the last event of the call passes this thread's loop. */
static void close_idle(struct dialer *d) {
    size_t kept = 0;
    for (size_t i = 0; i < d->n_old; i++)
        if (rpc_channel_is_idle(d->old[i]))
            rpc_channel_close(d->old[i]);
        else
            d->old[kept++] = d->old[i];
    d->n_old = kept;
}

struct rpc_channel *dialer_channel(struct dialer *d) {
    close_idle(d);
    if (d->next && d->n_old < DIALER_MAX_OLD) {
        d->old[d->n_old++] = d->now;
        d->now = d->next;
        d->next = NULL;
    }
    return d->now;
}
