/* How a default is filled in: for the files of defaults. Internal to this folder.
 *
 *     FILL(adamw, ADAM_W, lr, LR, 3e-4);     // trainyard.v1.AdamW.lr, when it was not given
 *
 * FILL_TEXT and FILL_PART return from the calling function, which has `e`, when there is no memory. */
#ifndef API_SPEC_DEFAULTS_FILL_H
#define API_SPEC_DEFAULTS_FILL_H

#include "api/codec/message.h"
#include "api/spec/defaults.h"

#include <string.h>

/* The case of an `optional` field that is set. */
#define FIELD_CASE(TYPE, FIELD) TRAINYARD__V1__##TYPE##___##FIELD##_##FIELD

#define FILL(msg, TYPE, field, FIELD, value)                                                                           \
    do {                                                                                                               \
        if (!(msg)->_##field##_case) {                                                                                 \
            (msg)->field = (value);                                                                                    \
            (msg)->_##field##_case = FIELD_CASE(TYPE, FIELD);                                                          \
        }                                                                                                              \
    } while (0)

/* As FILL for text, which the message owns. */
#define FILL_TEXT(msg, TYPE, field, FIELD, value)                                                                      \
    do {                                                                                                               \
        if (!(msg)->_##field##_case) {                                                                                 \
            char *copy_ = strdup(value);                                                                               \
            if (!copy_)                                                                                                \
                return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a job spec");                                  \
            (msg)->field = copy_;                                                                                      \
            (msg)->_##field##_case = FIELD_CASE(TYPE, FIELD);                                                          \
        }                                                                                                              \
    } while (0)

/* Makes a message that is not there; it may then stay empty. */
#define FILL_PART(at, desc)                                                                                            \
    do {                                                                                                               \
        if (!(at)) {                                                                                                   \
            ProtobufCMessage *made_ = NULL;                                                                            \
            TRY(message_new(&(desc), &made_, e));                                                                      \
            (at) = (void *)made_;                                                                                      \
        }                                                                                                              \
    } while (0)

/* defaults_model.c: the model's and the data's. */
MUST_CHECK status_t defaults_model(Trainyard__V1__JobSpec *spec, struct err *e);
/* defaults_train.c: batches, optimizer, schedule and the rest of `train`; zero is parallel.zero. */
MUST_CHECK status_t defaults_train(Trainyard__V1__TrainSpec *t, int32_t zero, struct err *e);

#endif
