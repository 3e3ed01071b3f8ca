#include "engine/collective/address_list.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The message that carries the addresses of all ranks of a gang to each executor has space for the frames, too. */
_Static_assert((long long)LIMIT_WORLD_SIZE *(LIMIT_RENDEZVOUS_BYTES + 64) <= LIMIT_RPC_MESSAGE_BYTES,
               "the addresses of the largest gang do not fit into one message");

enum { MAX_ADDRESS_BYTES = 1024 };

/* Followed by the first address, and by bytes [from, from + width) of each address. All ranks of a gang run on machines
 * of one byte order, as their tensors do. */
struct header {
    uint16_t size, from, width;
};

/* Clears what the family does not use. It may be anything: Gloo does not initialise it. */
static status_t clear_unused(char *address, size_t size, struct err *e) {
    struct sockaddr_storage s;
    if (size < sizeof s || size > MAX_ADDRESS_BYTES)
        return err_set(e, ST_INTERNAL, "an address of %zu bytes is not understood", size);
    memcpy(&s, address, sizeof s);
    const size_t used = s.ss_family == AF_INET    ? offsetof(struct sockaddr_in, sin_zero)
                        : s.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                  : 0;
    if (used == 0)
        return err_set(e, ST_INTERNAL, "an address of family %d is not understood", s.ss_family);
    memset(address + used, 0, sizeof s - used);
    return ST_OK;
}

/* The range of bytes in which an address differs from the first one. */
static struct header find_range(const char *all, int n, size_t size) {
    size_t from = size, to = 0;
    for (int i = 1; i < n; i++)
        for (size_t k = 0; k < size; k++)
            if (all[(size_t)i * size + k] != all[k]) {
                from = k < from ? k : from;
                to = k + 1 > to ? k + 1 : to;
            }
    return (struct header){ (uint16_t)size, (uint16_t)(to ? from : 0), (uint16_t)(to ? to - from : 0) };
}

status_t address_list_pack(const void *addresses, int n, size_t size, struct bytes *ret, struct err *e) {
    CLEANUP(freep) char *all = malloc((size_t)n * size + 1);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the addresses of %d peers", n);
    memcpy(all, addresses, (size_t)n * size);
    for (int i = 0; i < n; i++)
        TRY(clear_unused(all + (size_t)i * size, size, e));
    const struct header h = find_range(all, n, size);
    const size_t bytes = sizeof h + size + (size_t)n * h.width;
    if (bytes > LIMIT_RENDEZVOUS_BYTES)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the addresses of a rank for %d peers take %zu bytes, more than %d: they differ in %d bytes", n,
                       bytes, LIMIT_RENDEZVOUS_BYTES, h.width);
    TRY(bytes_append(ret, &h, sizeof h, e));
    TRY(bytes_append(ret, all, size, e));
    for (int i = 0; i < n; i++)
        TRY(bytes_append(ret, all + (size_t)i * size + h.from, h.width, e));
    return ST_OK;
}

status_t address_list_unpack(const void *packed, size_t bytes, int n, struct bytes *ret, struct err *e) {
    const char *first = (const char *)packed + sizeof(struct header);
    struct header h = { .size = 0 };
    if (bytes >= sizeof h)
        memcpy(&h, packed, sizeof h);
    if (h.size == 0 || h.size > MAX_ADDRESS_BYTES || h.from + h.width > h.size ||
        bytes != sizeof h + h.size + (size_t)n * h.width)
        return err_set(e, ST_INTERNAL, "a list of addresses of %d peers is not whole", n);
    for (int i = 0; i < n; i++) {
        TRY(bytes_append(ret, first, h.size, e));
        memcpy(ret->data + ret->len - h.size + h.from, first + h.size + (size_t)i * h.width, h.width);
    }
    return ST_OK;
}
