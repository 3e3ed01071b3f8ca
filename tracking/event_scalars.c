#include "tracking/event_scalars.h"

#include <endian.h>
#include <string.h>
#include <tensorflow/event.pb-c.h>

enum { DTYPE_FLOAT = 1, DTYPE_DOUBLE = 2 };

static bool shape_is_scalar(const Tensorflow__TensorShape *shape) {
    for (size_t i = 0; shape && i < shape->n_dim; i++)
        if (shape->dim[i]->size != 1)
            return false;
    return true;
}

static bool tensor_scalar(const Tensorflow__TensorProto *tensor, double *ret) {
    const ProtobufCBinaryData *content = &tensor->tensor_content;
    if (!shape_is_scalar(tensor->tensor_shape))
        return false;
    if (tensor->dtype == DTYPE_FLOAT && tensor->n_float_val == 1) {
        *ret = tensor->float_val[0];
        return true;
    }
    if (tensor->dtype == DTYPE_DOUBLE && tensor->n_double_val == 1) {
        *ret = tensor->double_val[0];
        return true;
    }
    if (tensor->dtype == DTYPE_FLOAT && content->len == sizeof(float)) {
        uint32_t bits;
        float value;
        memcpy(&bits, content->data, sizeof bits);
        bits = le32toh(bits);
        memcpy(&value, &bits, sizeof value);
        *ret = value;
        return true;
    }
    if (tensor->dtype == DTYPE_DOUBLE && content->len == sizeof(double)) {
        uint64_t bits;
        memcpy(&bits, content->data, sizeof bits);
        bits = le64toh(bits);
        memcpy(ret, &bits, sizeof *ret);
        return true;
    }
    return false;
}

static bool value_scalar(const Tensorflow__Summary__Value *value, double *ret) {
    const Tensorflow__SummaryMetadata__PluginData *plugin = value->metadata ? value->metadata->plugin_data : NULL;
    if (value->value_case == TENSORFLOW__SUMMARY__VALUE__VALUE_SIMPLE_VALUE) {
        *ret = (double)value->simple_value;
        return true;
    }
    if (value->value_case != TENSORFLOW__SUMMARY__VALUE__VALUE_TENSOR)
        return false;
    return (!plugin || !*plugin->plugin_name || strcmp(plugin->plugin_name, "scalars") == 0) &&
           tensor_scalar(value->tensor, ret);
}

bool event_scalars(const uint8_t *data, size_t n, event_scalar_add *add, void *ctx, int64_t *ret_others) {
    Tensorflow__Event *event = tensorflow__event__unpack(NULL, n, data);
    if (!event)
        return false;
    const bool summary = event->what_case == TENSORFLOW__EVENT__WHAT_SUMMARY && event->summary;
    for (size_t i = 0; summary && i < event->summary->n_value; i++) {
        const Tensorflow__Summary__Value *value = event->summary->value[i];
        double scalar;
        if (value_scalar(value, &scalar))
            add(ctx, value->tag, event->step, event->wall_time, scalar);
        else
            ++*ret_others;
    }
    tensorflow__event__free_unpacked(event, NULL);
    return true;
}
