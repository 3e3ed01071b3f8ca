#include "executor/image/layout.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static status_t json_open(const char *text, size_t n, const char *what, json_t **ret, struct err *e) {
    if (n <= LAYOUT_JSON_MAX)
        *ret = json_loadb(text, n, 0, NULL);
    return json_is_object(*ret) ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "%s of the image is no JSON object", what);
}

static bool digest_read(const json_t *descriptor, struct layout_digest *ret) {
    static const char PREFIX[] = "sha256:";
    const char *text = json_string_value(json_object_get(descriptor, "digest"));
    if (!text || strncmp(text, PREFIX, sizeof PREFIX - 1) != 0)
        return false;
    text += sizeof PREFIX - 1;
    if (strlen(text) != LAYOUT_DIGEST_BYTES - 1 || strspn(text, "0123456789abcdef") != LAYOUT_DIGEST_BYTES - 1)
        return false;
    memcpy(ret->text, text, LAYOUT_DIGEST_BYTES);
    return true;
}

/* As images name what uname calls `machine`. */
static const char *architecture_of(const char *machine) {
    return strcmp(machine, "x86_64") == 0 ? "amd64" : strcmp(machine, "aarch64") == 0 ? "arm64" : machine;
}

static bool is_text(const json_t *object, const char *name, const char *value) {
    const char *text = json_string_value(json_object_get(object, name));
    return text && strcmp(text, value) == 0;
}

static bool is_for(const json_t *descriptor, const char *machine) {
    const json_t *platform = json_object_get(descriptor, "platform");
    return is_text(platform, "os", "linux") && is_text(platform, "architecture", architecture_of(machine));
}

status_t layout_index_read(const char *json, size_t n, const char *machine, struct layout_digest *ret, bool *ret_index,
                           struct err *e) {
    CLEANUP(json_decrefp) json_t *index = NULL;
    TRY(json_open(json, n, "the index", &index, e));
    const json_t *all = json_object_get(index, "manifests"), *chosen = NULL;
    if (json_array_size(all) == 1)
        chosen = json_array_get(all, 0);
    for (size_t i = 0; i < json_array_size(all) && !chosen; i++)
        if (is_for(json_array_get(all, i), machine))
            chosen = json_array_get(all, i);
    if (!chosen)
        return err_set(e, ST_INVALID_ARGUMENT, "the image has no manifest for linux on %s", architecture_of(machine));
    if (!digest_read(chosen, ret))
        return err_set(e, ST_INVALID_ARGUMENT, "the index of the image names a manifest without a SHA-256");
    *ret_index = is_text(chosen, "mediaType", "application/vnd.oci.image.index.v1+json") ||
                 is_text(chosen, "mediaType", "application/vnd.docker.distribution.manifest.list.v2+json");
    return ST_OK;
}

status_t layout_manifest_read(const char *json, size_t n, struct layout_manifest *ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *manifest = NULL;
    TRY(json_open(json, n, "the manifest", &manifest, e));
    const json_t *layers = json_object_get(manifest, "layers");
    ret->n_layers = json_array_size(layers);
    if (!digest_read(json_object_get(manifest, "config"), &ret->config) || !json_is_array(layers))
        return err_set(e, ST_INVALID_ARGUMENT, "the manifest of the image has no config or no layers");
    if (ret->n_layers > LAYOUT_LAYERS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the image has %zu layers, more than %d", ret->n_layers,
                       LAYOUT_LAYERS_MAX);
    for (size_t i = 0; i < ret->n_layers; i++)
        if (!digest_read(json_array_get(layers, i), &ret->layers[i]))
            return err_set(e, ST_INVALID_ARGUMENT, "layer %zu of the image has no SHA-256", i);
    return ST_OK;
}

bool layout_is_variable(const char *text) {
    const size_t n = strcspn(text, "=");
    return n > 0 && text[n] == '=' && strncmp(text, "TRAINYARD_", sizeof "TRAINYARD_" - 1) != 0;
}

static void variables_read(const json_t *list, char **ret, size_t *ret_n) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const size_t bytes = text ? strlen(text) + 1 : 0;
        if (!text || !layout_is_variable(text))
            continue;
        *ret = alloc_resize(*ret, *ret_n + bytes, 1);
        memcpy(*ret + *ret_n, text, bytes);
        *ret_n += bytes;
    }
}

status_t layout_config_read(const char *json, size_t n, const char *machine, char **ret, size_t *ret_n, struct err *e) {
    CLEANUP(json_decrefp) json_t *config = NULL;
    TRY(json_open(json, n, "the config", &config, e));
    const char *architecture = json_string_value(json_object_get(config, "architecture"));
    if (architecture && strcmp(architecture, architecture_of(machine)) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the image is for %.40s, and the host is %s", architecture,
                       architecture_of(machine));
    *ret = NULL;
    *ret_n = 0;
    variables_read(json_object_get(json_object_get(config, "config"), "Env"), ret, ret_n);
    return ST_OK;
}
