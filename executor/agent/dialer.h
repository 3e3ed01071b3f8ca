/* The channel by which a stream dials the controller. It can be opened anew, after the files of TLS or of the token
 * have changed: a running stream stays on the channel that it began on, and the next one uses the new channel. One
 * thread uses it. */
#ifndef EXECUTOR_AGENT_DIALER_H
#define EXECUTOR_AGENT_DIALER_H

#include "api/rpc/client.h"
#include "executor/agent/host.h"

#define DIALER_MAX_OLD 8

struct dialer {
    const struct agent_options *options;
    struct rpc_channel *now, *next;          /* next: NULL, or what the next dial uses */
    struct rpc_channel *old[DIALER_MAX_OLD]; /* with streams that may still end */
    size_t n_old;
};

MUST_CHECK status_t dialer_open(struct dialer *d, const struct agent_options *options, struct err *e);
void dialer_close(struct dialer *d); /* its streams are closed */
/* Reads the files again. On an error nothing changes. */
MUST_CHECK status_t dialer_reload(struct dialer *d, struct err *e);
/* The channel for a new stream; the stream before it is closed. Valid until the next call. */
struct rpc_channel *dialer_channel(struct dialer *d);

#endif
