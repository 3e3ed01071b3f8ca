/* What a checkpoint's manifest records of its model. */
#ifndef EXECUTOR_ENGINE_PRETRAINED_RECORD_H
#define EXECUTOR_ENGINE_PRETRAINED_RECORD_H

#include "executor/engine/model/model.h"

/* layout_json: the manifest's layout, whose "model" is model_to_json's text. DATA_LOSS. */
MUST_CHECK status_t record_model(const char *layout_json, struct model_config *ret, struct err *e);

#endif
