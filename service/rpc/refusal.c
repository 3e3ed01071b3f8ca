#include "service/rpc/refusal.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

status_t refuse_spec(struct rpc_call *call, const struct spec_problems *problems, struct err *e) {
    enum { MORE_BYTES = 40 }; /* " (and N more)" */
    const size_t capacity = sizeof e->msg - (problems->n > 1 ? MORE_BYTES : 0);
    size_t used = 0, n_reported = 0;
    rpc_set_reason(call, "SPEC_INVALID");
    for (; n_reported < problems->n; n_reported++) {
        const char *line = problems->lines[n_reported];
        if (n_reported > 0 && used + strlen("; ") + strlen(line) >= capacity)
            break;
        used += (size_t)snprintf(e->msg + used, capacity - used, "%s%s", n_reported ? "; " : "", line);
        if (used >= capacity)
            used = capacity - 1 - utf8_open(e->msg, capacity - 1);
    }
    e->msg[used] = '\0';
    if (n_reported < problems->n)
        snprintf(e->msg + used, sizeof e->msg - used, " (and %zu more)", problems->n - n_reported);
    return ST_INVALID_ARGUMENT;
}

size_t lines_of(const struct spec_problems *p, char *ret[SPEC_PROBLEMS]) {
    for (size_t i = 0; i < p->n; i++)
        ret[i] = p->lines[i];
    return p->n;
}
