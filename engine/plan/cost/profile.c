#include "engine/plan/cost/profile.h"

#include "base/bytes.h"
#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum range { ABOVE_ZERO, PART, ZERO_OR_MORE };

/* object[key] into *ret; a missing one is an error unless `optional`. */
static status_t number(const char *where, const json_t *object, const char *key, enum range range, double *ret,
                       struct err *e) {
    const json_t *v = json_object_get(object, key);
    double x = v ? json_number_value(v) : 0;
    if (!json_is_number(v) || x < 0 || (range != ZERO_OR_MORE && !(x > 0)) || (range == PART && x > 1))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %s is missing or no number %s", where, key,
                       range == PART ? "in (0, 1]" : "that makes sense");
    *ret = x;
    return ST_OK;
}

static status_t text(const char *where, const json_t *object, const char *key, char *ret, size_t size, struct err *e) {
    const char *s = json_string_value(json_object_get(object, key));
    if (!s || !*s || strlen(s) >= size)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %s is missing or longer than %zu bytes", where, key, size - 1);
    snprintf(ret, size, "%s", s);
    return ST_OK;
}

/* Optional. */
static status_t parse_accelerator(const char *where, const json_t *root, struct plan_profile *p, struct err *e) {
    if (!json_object_get(root, "accelerator"))
        return ST_OK;
    TRY(text(where, root, "accelerator", p->accelerator, sizeof p->accelerator, e));
    if (strcmp(p->accelerator, "cpu") != 0 && strcmp(p->accelerator, "cuda") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: accelerator %s is neither cpu nor cuda", where, p->accelerator);
    return ST_OK;
}

static status_t parse_products(const char *where, const json_t *root, struct plan_profile *p, struct err *e) {
    static const struct {
        const char *key;
        enum dtype type;
    } KEYS[] = { { "fp32", DTYPE_F32 }, { "bf16", DTYPE_BF16 }, { "fp16", DTYPE_F16 } };
    const json_t *products = json_object_get(root, "product_flops");
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (i == 0 || json_object_get(products, KEYS[i].key))
            TRY(number(where, products, KEYS[i].key, ABOVE_ZERO, &p->product_flops[KEYS[i].type], e));
    return number(where, root, "product_reach", PART, &p->product_reach, e);
}

static status_t parse_link(const char *where, const json_t *root, const char *key, struct plan_link *ret,
                           struct err *e) {
    const json_t *link = json_object_get(root, key);
    TRY(number(where, link, "bytes_per_second", ABOVE_ZERO, &ret->bytes_per_second, e));
    return number(where, link, "seconds", ZERO_OR_MORE, &ret->seconds, e);
}

static status_t parse(const char *where, const json_t *root, struct plan_profile *p, struct err *e) {
    double bytes = 0, allowance = 0, ranks = 0;
    TRY(text(where, root, "name", p->name, sizeof p->name, e));
    TRY(text(where, root, "device", p->device, sizeof p->device, e));
    TRY(parse_accelerator(where, root, p, e));
    TRY(parse_products(where, root, p, e));
    const json_t *memory = json_object_get(root, "memory");
    TRY(number(where, memory, "bytes", ABOVE_ZERO, &bytes, e));
    TRY(number(where, memory, "bytes_per_second", ABOVE_ZERO, &p->memory_bytes_per_second, e));
    TRY(number(where, memory, "reach", PART, &p->memory_reach, e));
    TRY(number(where, root, "allowance_bytes", ZERO_OR_MORE, &allowance, e));
    TRY(number(where, root, "launch_seconds", ZERO_OR_MORE, &p->launch_seconds, e));
    TRY(parse_link(where, root, "near", &p->intra_node, e));
    TRY(parse_link(where, root, "far", &p->inter_node, e));
    TRY(number(where, json_object_get(root, "near"), "ranks", ABOVE_ZERO, &ranks, e));
    if (!json_array_size(json_object_get(root, "sources")))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: sources is missing: name the sources of the figures", where);
    p->memory_bytes = (size_t)bytes;
    p->allowance_bytes = (size_t)allowance;
    p->node_ranks = ranks < 1 << 20 ? (int)ranks : 1 << 20;
    return ST_OK;
}

status_t plan_profile_parse(const char *where, const char *json, size_t n, struct plan_profile *ret, struct err *e) {
    json_error_t why;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: line %d: %s", where, why.line, why.text);
    struct plan_profile p = { 0 };
    status_t st = parse(where, root, &p, e);
    json_decref(root);
    if (st == ST_OK)
        *ret = p;
    return st;
}

static status_t not_found(const char *name, struct err *e) {
    char list[256] = "cpu";
    for (int i = 0; i < N_PROFILE_TEXTS; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, ", %s", PROFILE_TEXTS[i].name);
    }
    return err_set(e, ST_NOT_FOUND, "there is no device profile %s: name one of %s, or a file", name, list);
}

status_t plan_profile_find(const char *name, struct plan_profile *ret, struct err *e) {
    for (int i = 0; i < N_PROFILE_TEXTS; i++)
        if (strcmp(PROFILE_TEXTS[i].name, name) == 0)
            return plan_profile_parse(name, PROFILE_TEXTS[i].json, strlen(PROFILE_TEXTS[i].json), ret, e);
    if (!strchr(name, '/') && !strchr(name, '.'))
        return not_found(name, e);
    CLEANUP(bytes_done) struct bytes b;
    bytes_init(&b, PROFILE_JSON_BYTES);
    TRY(file_read(name, &b, e));
    return plan_profile_parse(name, b.data ? b.data : "", b.len, ret, e);
}

double plan_profile_seconds(const struct plan_profile *p, enum dtype type, double flops, double bytes) {
    /* What has no products of this type computes in fp32. */
    double peak = p->product_flops[type] > 0 ? p->product_flops[type] : p->product_flops[DTYPE_F32];
    double compute = flops / (peak * p->product_reach);
    double memory = bytes / (p->memory_bytes_per_second * p->memory_reach);
    return p->launch_seconds + (compute > memory ? compute : memory);
}

const struct plan_link *plan_profile_link(const struct plan_profile *p, int from, int to) {
    return from / p->node_ranks == to / p->node_ranks ? &p->intra_node : &p->inter_node;
}
