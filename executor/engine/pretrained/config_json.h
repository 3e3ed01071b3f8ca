/* config.json, as transformers writes it for a model, and what it says of ours. Trusts nothing. Private to this folder
 * and its fuzz target. */
#ifndef EXECUTOR_ENGINE_PRETRAINED_CONFIG_JSON_H
#define EXECUTOR_ENGINE_PRETRAINED_CONFIG_JSON_H

#include "base/bytes.h"
#include "executor/engine/model/model.h"

/* model_type gpt2 or llama. DATA_LOSS: no such JSON; INVALID_ARGUMENT: a model that this build does not compute as
 * transformers does, with the field that says so. */
MUST_CHECK status_t config_json_parse(const char *text, size_t n, struct model_config *ret, struct err *e);

/* Appends the text. INVALID_ARGUMENT for a family that transformers does not have. */
MUST_CHECK status_t config_json_write(const struct model_config *model, struct bytes *ret, struct err *e);

#endif
