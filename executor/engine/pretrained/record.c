#include "executor/engine/pretrained/record.h"

#include <jansson.h>
#include <stdlib.h>

status_t record_model(const char *layout_json, struct model_config *ret, struct err *e) {
    json_t *root = json_loads(layout_json, 0, NULL);
    char *model = json_dumps(json_object_get(root, "model"), JSON_COMPACT);
    struct err why = { "it has none" };
    status_t st = model ? model_from_json(model, ret, &why) : ST_DATA_LOSS;
    free(model);
    json_decref(root);
    return st == ST_OK ? ST_OK
                       : err_set(e, ST_DATA_LOSS, "the checkpoint's manifest does not describe its model: %s", why.msg);
}
