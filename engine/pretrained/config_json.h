/* Translates between transformers' config.json and a model_config. Validates everything. Private to this folder and its
 * fuzz target. */
#ifndef ENGINE_PRETRAINED_CONFIG_JSON_H
#define ENGINE_PRETRAINED_CONFIG_JSON_H

#include "base/bytes.h"
#include "engine/model/model.h"

/* model_type gpt2 or llama. DATA_LOSS: invalid JSON or field; INVALID_ARGUMENT names a field by which transformers
 * would compute something else than this build. */
MUST_CHECK status_t config_json_parse(const char *text, size_t n, struct model_config *ret, struct err *e);

/* Appends the JSON text. INVALID_ARGUMENT for a family that transformers does not have. */
MUST_CHECK status_t config_json_write(const struct model_config *model, struct bytes *ret, struct err *e);

#endif
