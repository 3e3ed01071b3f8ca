/* A URI of data, which any user may submit. Any bytes are a URI or a sentence, for a spec and for trainyard-data
 * alike; what the braces stand for can be decoded and compared. */
#include "api/spec/data_uri.h"
#include "api/spec/remote_uri.h"
#include "base/limits.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char text[300];
    struct remote_uri uri = { 0 };
    struct data_uris paths = { 0 };
    if (n >= sizeof text)
        return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    const bool is_good = remote_uri_parse(text, &uri, NULL) == ST_OK;
    assert(is_good || !data_uri_is_remote(text) || data_uri_check(text, true, NULL) == ST_INVALID_ARGUMENT);
    if (!is_good)
        return 0;
    assert(data_uri_is_remote(text) && data_uri_plain_bytes(text) <= n);
    assert(uri.root && uri.path && *uri.path && (uri.scheme == DATA_HF) == (uri.revision != NULL));
    if (data_braces_expand(uri.path, 0, LIMIT_DATA_OBJECTS, &paths, NULL) == ST_OK) {
        assert(paths.n > 0);
        for (size_t i = 0; i < paths.n && i < 100; i++) {
            CLEANUP(freep) char *decoded = remote_path_decode(paths.all[i]);
            CLEANUP(freep) char *glob = remote_path_glob(paths.all[i]);
            assert(strlen(decoded) <= strlen(paths.all[i]));
            if (!remote_path_is_pattern(uri.scheme, paths.all[i]) && uri.scheme != DATA_HTTPS)
                assert(remote_path_matches(glob, decoded) || decoded[0] == '.' || strstr(decoded, "/."));
        }
    }
    data_uris_free(&paths);
    remote_uri_done(&uri);
    return 0;
}
