#include "executor/container/cdi.h"

#include "base/alloc.h"

#include <string.h>
#include <yaml.h>

struct spec {
    yaml_document_t document;
    void (*on_mount)(void *ctx, const char *host_path);
    void *ctx;
    int left; /* of the steps: an alias lets a short text name a list many times */
};

static const char KIND[] = "nvidia.com/gpu";

/* NULL: the mapping has no such key. */
static const yaml_node_t *member(struct spec *s, const yaml_node_t *mapping, const char *key) {
    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < mapping->data.mapping.pairs.top; p++) {
        const yaml_node_t *name = yaml_document_get_node(&s->document, p->key);
        if (name && name->type == YAML_SCALAR_NODE && strcmp((const char *)name->data.scalar.value, key) == 0)
            return yaml_document_get_node(&s->document, p->value);
    }
    return NULL;
}

static const char *text_of(const yaml_node_t *node) {
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Calls on each item of the list `key`. */
static status_t each(struct spec *s, const yaml_node_t *mapping, const char *key,
                     status_t (*on_item)(struct spec *s, const yaml_node_t *item, struct err *e), struct err *e) {
    const yaml_node_t *list = member(s, mapping, key);
    if (!list || list->type != YAML_SEQUENCE_NODE)
        return ST_OK;
    for (const yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        if (s->left-- == 0)
            return err_set(e, ST_RESOURCE_EXHAUSTED, "the CDI spec names more than %d mounts", CDI_MOUNTS_MAX);
        TRY(on_item(s, yaml_document_get_node(&s->document, *i), e));
    }
    return ST_OK;
}

static status_t mount_take(struct spec *s, const yaml_node_t *mount, struct err *e) {
    const char *path = text_of(member(s, mount, "hostPath"));
    if (!path || *path != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "the CDI spec has a mount without an absolute hostPath");
    s->on_mount(s->ctx, path);
    return ST_OK;
}

static status_t edits_take(struct spec *s, const yaml_node_t *of, struct err *e) {
    return each(s, member(s, of, "containerEdits"), "mounts", mount_take, e);
}

static status_t document_read(struct spec *s, bool *ret_gpus, struct err *e) {
    const yaml_node_t *root = yaml_document_get_root_node(&s->document);
    const char *kind = text_of(member(s, root, "kind"));
    if (!kind || !member(s, root, "cdiVersion"))
        return err_set(e, ST_INVALID_ARGUMENT, "the file has no cdiVersion or no kind: it is no CDI spec");
    *ret_gpus = strcmp(kind, KIND) == 0;
    if (!*ret_gpus)
        return ST_OK;
    TRY(edits_take(s, root, e));
    return each(s, root, "devices", edits_take, e);
}

status_t cdi_read(const char *text, size_t n, void (*on_mount)(void *ctx, const char *host_path), void *ctx,
                  bool *ret_gpus, struct err *e) {
    struct spec s = { .on_mount = on_mount, .ctx = ctx, .left = CDI_MOUNTS_MAX };
    yaml_parser_t parser;
    *ret_gpus = false;
    if (n > CDI_BYTES_MAX)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the CDI spec has more than %d bytes", CDI_BYTES_MAX);
    if (!yaml_parser_initialize(&parser))
        alloc_refused(sizeof parser);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    status_t st = ST_OK;
    if (!yaml_parser_load(&parser, &s.document)) {
        st = err_set(e, ST_INVALID_ARGUMENT, "line %zu: %s", parser.problem_mark.line + 1,
                     parser.problem ? parser.problem : "the text is not YAML");
    } else {
        st = document_read(&s, ret_gpus, e);
        yaml_document_delete(&s.document);
    }
    yaml_parser_delete(&parser);
    return st;
}
