/* What a rank offers to a rendezvous: the addresses at which its peers reach it, one for each peer.
 *
 * An address of Gloo is a sockaddr_storage and a number, 136 bytes. Written out, the lists of all ranks are 142 MB for
 * 1,024 ranks, and one message carries them to each executor. But the addresses of a rank differ in two bytes only: the
 * port (or, in later versions of Gloo, the number). So a packed list is the first address, and of each address the
 * range of bytes in which any of them differs from the first: about 2 bytes a peer. */
#ifndef ENGINE_COLLECTIVE_ADDRESS_LIST_H
#define ENGINE_COLLECTIVE_ADDRESS_LIST_H

#include "base/bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends n >= 1 addresses of `size` bytes in packed form. Bytes of the sockaddr_storage that its family does not use
 * become 0. INTERNAL: they are no addresses. RESOURCE_EXHAUSTED: more than LIMIT_RENDEZVOUS_BYTES, because the
 * addresses differ in too many bytes. */
MUST_CHECK status_t address_list_pack(const void *addresses, int n, size_t size, struct bytes *ret, struct err *e);

/* Appends the addresses of a packed list. INTERNAL: it is no list of n addresses. */
MUST_CHECK status_t address_list_unpack(const void *packed, size_t bytes, int n, struct bytes *ret, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
