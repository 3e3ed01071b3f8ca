/* A URI of data, which any user may submit. Any bytes are a URI or a sentence; what the braces stand for can be decoded
 * and compared. */
#include "api/spec/data_braces.h"
#include "base/limits.h"
#include "executor/data/uri.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char text[300];
    struct data_uri uri = { 0 };
    struct data_uris paths = { 0 };
    if (n >= sizeof text)
        return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    if (data_uri_parse(text, &uri, NULL) != ST_OK)
        return 0;
    assert(uri.root && uri.path && *uri.path && (uri.scheme == DATA_HF) == (uri.revision != NULL));
    if (data_braces_expand(uri.path, 0, LIMIT_DATA_OBJECTS, &paths, NULL) == ST_OK) {
        assert(paths.n > 0);
        for (size_t i = 0; i < paths.n && i < 100; i++) {
            CLEANUP(freep) char *decoded = data_path_decode(paths.all[i]);
            CLEANUP(freep) char *glob = data_path_glob(paths.all[i]);
            assert(strlen(decoded) <= strlen(paths.all[i]));
            if (!data_path_is_pattern(uri.scheme, paths.all[i]) && uri.scheme != DATA_HTTPS)
                assert(data_path_matches(glob, decoded) || decoded[0] == '.' || strstr(decoded, "/."));
        }
    }
    data_uris_free(&paths);
    data_uri_done(&uri);
    return 0;
}
