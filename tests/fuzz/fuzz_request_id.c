/* The x-request-id of a peer, as the server and the client read it. Each line of the input is a value of the metadata:
 * of that key, or of another one if the line begins with '!'. The id goes into a log and into a header, so that only
 * the promised characters may come through, and the first valid value counts. */
#include "api/rpc/request_id.h"

#include <assert.h>
#include <string.h>

enum { MAX_VALUES = 16 };

static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static bool fits(const uint8_t *value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!memchr(allowed, value[i], sizeof allowed - 1))
            return false;
    return n >= 1 && n <= 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    grpc_metadata values[MAX_VALUES];
    grpc_metadata_array metadata = { .metadata = values, .capacity = MAX_VALUES };
    const uint8_t *wanted = NULL;
    size_t n_wanted = 0;
    for (const uint8_t *end = data + n, *next; data < end && metadata.count < MAX_VALUES; data = next) {
        const uint8_t *line_end = memchr(data, '\n', (size_t)(end - data));
        const bool other = *data == '!';
        next = line_end ? line_end + 1 : end;
        data += other;
        const size_t bytes = (size_t)((line_end ? line_end : end) - data);
        values[metadata.count].key = grpc_slice_from_static_string(other ? "x-request-ids" : REQUEST_ID_KEY);
        values[metadata.count++].value = grpc_slice_from_static_buffer(data, bytes);
        if (!wanted && !other && fits(data, bytes)) {
            wanted = data;
            n_wanted = bytes;
        }
    }
    char id[RPC_REQUEST_ID_BYTES];
    memset(id, 'x', sizeof id);
    const bool found = request_id_find(&metadata, id);
    assert(found == (wanted != NULL) && strnlen(id, sizeof id) == n_wanted);
    assert(!found || memcmp(id, wanted, n_wanted) == 0);
    return 0;
}
