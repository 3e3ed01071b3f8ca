/* collective_open_threads, in a file of its own: only tests call it, and other programs do not link it. */
#include "base/limits.h"
#include "engine/collective/internal.h"

#include <string.h>

status_t collective_open_threads(int world_size, int timeout_ms, struct collective **ret, struct err *e) {
    TRY(collective_check_world_size(world_size, e));
    struct collective_transport *transports[LIMIT_WORLD_SIZE] = { NULL };
    struct collective *all[LIMIT_WORLD_SIZE] = { NULL };
    status_t st = ST_OK;
    if (world_size > 1)
        thread_transports_open(world_size, timeout_ms, transports);
    for (int r = 0; r < world_size && st == ST_OK; r++) {
        st = collective_new(r, world_size, timeout_ms, &all[r], e);
        if (st == ST_OK)
            all[r]->host = take_ptr(&transports[r]);
    }
    for (int r = 0; r < world_size && st != ST_OK; r++) {
        collective_close(all[r]);
        if (transports[r])
            transports[r]->ops->close(transports[r]);
    }
    if (st == ST_OK)
        memcpy(ret, all, (size_t)world_size * sizeof *ret);
    return st;
}
