/* The tuning cache: arrays of choices, and the text in which a checkpoint keeps them (format: tuning_cache.h).
 *
 * Choices are found by linear search, which is enough for some hundred entries that are looked up when a shape is
 * first computed. Writing prints each choice on a line. Parsing is strict, because the text is an input from
 * outside: numbers have no leading zeros or signs, names must be known, and a repeated choice is an error. An
 * invalid line is reported by its number, and nothing is taken from an invalid table.
 *
 * tuning_cache_take reads several tables one after another (one per rank) and keeps, for each shape, the first
 * choice that was made on the same device and library. */
#include "kernels/cuda/lib/tuning_cache.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <string.h>

static const char heading[] = "trainyard products 1", device_before[] = "on ";

enum { NUMBERS = 7, HEX_DIGITS = 16 * PRODUCT_ALGORITHM_WORDS, FLAGS = 6, LINE_BYTES = 408 };
_Static_assert((TUNING_MAX_PRODUCTS + TUNING_MAX_ENGINES + 2) * LINE_BYTES < KERNELS_TUNING_CACHE_BYTES,
               "the text fits");
static const char *const flag_name[FLAGS] = { "a_transposed", "b_transposed", "accumulate", "c_fp32", "bias", "gelu" };
static const char *const precision_name[] = {
    [KERNELS_FP32] = "fp32", [KERNELS_BF16] = "bf16", [KERNELS_FP16] = "fp16"
};
static const char *const pass_name[] = { [ENGINE_FORWARD] = "convolution",
                                         [ENGINE_INPUT] = "convolution-input",
                                         [ENGINE_WEIGHT] = "convolution-weight",
                                         [ENGINE_ATTENTION] = "attention",
                                         [ENGINE_ATTENTION_BACKWARD] = "attention-backward" };

void tuning_cache_done(struct tuning_cache *c) {
    free(c->products);
    free(c->engines);
    *c = (struct tuning_cache){ 0 };
}

const struct product_choice *tuning_cache_product(const struct tuning_cache *c, const struct gemm *product) {
    for (int i = 0; i < c->n_products; i++)
        if (gemm_equal(&c->products[i].product, product))
            return &c->products[i];
    return NULL;
}

const struct engine_choice *tuning_cache_engine(const struct tuning_cache *c, const struct engine_choice *like) {
    for (int i = 0; i < c->n_engines; i++) {
        const struct engine_choice *one = &c->engines[i];
        if (one->pass == like->pass && one->precision == like->precision && one->version == like->version &&
            one->workspace_bytes == like->workspace_bytes && memcmp(one->dims, like->dims, sizeof one->dims) == 0)
            return one;
    }
    return NULL;
}

status_t tuning_cache_add_product(struct tuning_cache *c, const struct product_choice *choice, struct err *e) {
    if (c->n_products == TUNING_MAX_PRODUCTS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a run has more than %d different matrix products",
                       TUNING_MAX_PRODUCTS);
    c->products = alloc_resize(c->products, (size_t)c->n_products + 1, sizeof *c->products);
    c->products[c->n_products++] = *choice;
    return ST_OK;
}

status_t tuning_cache_add_engine(struct tuning_cache *c, const struct engine_choice *choice, struct err *e) {
    if (c->n_engines == TUNING_MAX_ENGINES)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a run has more than %d different convolutions and attentions",
                       TUNING_MAX_ENGINES);
    c->engines = alloc_resize(c->engines, (size_t)c->n_engines + 1, sizeof *c->engines);
    c->engines[c->n_engines++] = *choice;
    return ST_OK;
}

/* --- writing ---*/

static void write_flags(FILE *f, unsigned flags) {
    const char *before = "";
    for (int i = 0; i < FLAGS; i++)
        if (flags >> i & 1) {
            fprintf(f, "%s%s", before, flag_name[i]);
            before = "+";
        }
    if (!flags)
        fputs("-", f);
}

static void write_product(FILE *f, const struct product_choice *c) {
    const struct gemm *p = &c->product;
    fprintf(f, "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " ",
            precision_name[p->precision], p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->alignment);
    write_flags(f, p->flags);
    fputs(" ", f);
    for (int i = 0; i < PRODUCT_ALGORITHM_WORDS; i++)
        fprintf(f, "%016" PRIx64, c->algorithm[i]);
    fprintf(f, " %" PRIu64 "\n", c->workspace);
}

static void write_engine(FILE *f, const struct engine_choice *c) {
    fprintf(f, "%s %s", pass_name[c->pass], precision_name[c->precision]);
    for (int i = 0; i < ENGINE_DIMS; i++)
        fprintf(f, " %" PRId64, c->dims[i]);
    fprintf(f, " %" PRId64 " %" PRId64 " %s\n", c->version, c->workspace_bytes, c->name);
}

char *tuning_cache_write(const struct tuning_cache *c) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        alloc_refused(KERNELS_TUNING_CACHE_BYTES);
    fprintf(f, "%s\n%s%s\n", heading, device_before, c->device);
    for (int i = 0; i < c->n_products; i++)
        write_product(f, &c->products[i]);
    for (int i = 0; i < c->n_engines; i++)
        write_engine(f, &c->engines[i]);
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        alloc_refused(n);
    return text;
}

/* --- reading ---*/

/* The rest of a line. */
struct rest {
    const char *at, *end;
};

/* Takes the next word; empty at the end. */
static struct rest word(struct rest *r) {
    struct rest w = { r->at, r->at };
    while (w.end < r->end && *w.end != ' ')
        w.end++;
    r->at = w.end < r->end ? w.end + 1 : w.end;
    return w;
}

static bool is(struct rest w, const char *text) {
    const size_t n = strlen(text);
    return (size_t)(w.end - w.at) == n && memcmp(w.at, text, n) == 0;
}

/* A decimal number of at most 18 digits, so below 2^62, without a sign or leading zeros. */
static bool number(struct rest w, int64_t *ret) {
    int64_t v = 0;
    if (w.at == w.end || w.end - w.at > 18 || (*w.at == '0' && w.end - w.at > 1))
        return false;
    for (; w.at < w.end; w.at++) {
        if (*w.at < '0' || *w.at > '9')
            return false;
        v = 10 * v + (*w.at - '0');
    }
    *ret = v;
    return true;
}

static bool precision(struct rest w, enum kernels_precision *ret) {
    for (int i = KERNELS_FP32; i <= KERNELS_FP16; i++)
        if (is(w, precision_name[i])) {
            *ret = (enum kernels_precision)i;
            return true;
        }
    return false;
}

static bool flags(struct rest w, unsigned *ret) {
    *ret = 0;
    if (is(w, "-"))
        return true;
    for (const char *next; w.at <= w.end; w.at = next) {
        struct rest one = { w.at, w.at };
        int i = 0;
        while (one.end < w.end && *one.end != '+')
            one.end++;
        next = one.end + 1;
        while (i < FLAGS && !is(one, flag_name[i]))
            i++;
        if (i == FLAGS)
            return false;
        *ret |= 1u << i;
    }
    return *ret != 0;
}

static bool algorithm(struct rest w, uint64_t ret[PRODUCT_ALGORITHM_WORDS]) {
    static const char digits[] = "0123456789abcdef";
    if (w.end - w.at != HEX_DIGITS)
        return false;
    for (int i = 0; i < HEX_DIGITS; i++) {
        const char *digit = memchr(digits, w.at[i], 16);
        if (!digit)
            return false;
        ret[i / 16] = ret[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static bool product(struct rest line, struct product_choice *c) {
    struct gemm *p = &c->product;
    int64_t *const numbers[NUMBERS] = { &p->m, &p->n, &p->k, &p->lda, &p->ldb, &p->ldc, &p->alignment };
    int64_t workspace = 0;
    if (!precision(word(&line), &p->precision))
        return false;
    for (int i = 0; i < NUMBERS; i++)
        if (!number(word(&line), numbers[i]) || *numbers[i] == 0)
            return false;
    if (!flags(word(&line), &p->flags) || !algorithm(word(&line), c->algorithm) || !number(word(&line), &workspace))
        return false;
    c->workspace = (uint64_t)workspace;
    return line.at == line.end;
}

static bool engine_pass(struct rest w, enum engine_pass *ret) {
    for (int i = 0; i < ENGINE_PASSES; i++)
        if (is(w, pass_name[i])) {
            *ret = (enum engine_pass)i;
            return true;
        }
    return false;
}

static bool engine_name(struct rest w, char ret[ENGINE_NAME_BYTES]) {
    const size_t n = (size_t)(w.end - w.at);
    if (n == 0 || n >= ENGINE_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!memchr("0123456789:=,-", w.at[i], 14))
            return false;
    memcpy(ret, w.at, n);
    ret[n] = '\0';
    return true;
}

static bool engine(struct rest line, struct engine_choice *c) {
    if (!engine_pass(word(&line), &c->pass) || !precision(word(&line), &c->precision))
        return false;
    for (int i = 0; i < ENGINE_DIMS; i++)
        if (!number(word(&line), &c->dims[i]))
            return false;
    return number(word(&line), &c->version) && number(word(&line), &c->workspace_bytes) &&
           engine_name(word(&line), c->name) && line.at == line.end;
}

/* Line 2, kept as text: it is only compared and printed. */
static bool device(struct rest line, struct tuning_cache *c) {
    const size_t before = sizeof device_before - 1, n = (size_t)(line.end - line.at);
    if (n <= before || n - before >= sizeof c->device || memcmp(line.at, device_before, before) != 0 ||
        memchr(line.at, 0, n))
        return false;
    memcpy(c->device, line.at + before, n - before);
    return true;
}

static status_t no_line(int line_number, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "line %d of a table of choices is not one", line_number);
}

/* A line with a choice. */
static status_t take_line(struct rest line, int line_number, struct tuning_cache *c, struct err *e) {
    struct product_choice of_product = { 0 };
    struct engine_choice of_engine = { 0 };
    const bool multiplies = product(line, &of_product);
    if (!multiplies && !engine(line, &of_engine))
        return no_line(line_number, e);
    if (multiplies ? tuning_cache_product(c, &of_product.product) != NULL : tuning_cache_engine(c, &of_engine) != NULL)
        return err_set(e, ST_INVALID_ARGUMENT, "line %d of a table of choices makes a choice again", line_number);
    return multiplies ? tuning_cache_add_product(c, &of_product, e) : tuning_cache_add_engine(c, &of_engine, e);
}

status_t tuning_cache_parse(const char *text, size_t n, struct tuning_cache *ret, struct err *e) {
    CLEANUP(tuning_cache_donep) struct tuning_cache c = { 0 };
    const char *end = text + n;
    int line_number = 0;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const struct rest line = { at, newline ? newline : end };
        line_number++;
        if (!newline || (line_number == 1 && !is(line, heading)) || (line_number == 2 && !device(line, &c)))
            return no_line(line_number, e);
        if (line_number > 2)
            TRY(take_line(line, line_number, &c, e));
        at = newline + 1;
    }
    if (line_number < 2)
        return err_set(e, ST_INVALID_ARGUMENT, "a table of choices ends before its second line");
    *ret = c;
    c = (struct tuning_cache){ 0 };
    return ST_OK;
}

/* The bytes of the first of several tables, up to the next heading. */
static size_t table_bytes(const char *text, size_t n) {
    const char *end = text + n;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (at > text && newline && is((struct rest){ at, newline }, heading))
            return (size_t)(at - text);
        at = newline ? newline + 1 : end;
    }
    return n;
}

static status_t take_all(struct tuning_cache *c, const struct tuning_cache *from, struct err *e) {
    for (int i = 0; i < from->n_products; i++)
        if (!tuning_cache_product(c, &from->products[i].product))
            TRY(tuning_cache_add_product(c, &from->products[i], e));
    for (int i = 0; i < from->n_engines; i++)
        if (!tuning_cache_engine(c, &from->engines[i]))
            TRY(tuning_cache_add_engine(c, &from->engines[i], e));
    return ST_OK;
}

status_t tuning_cache_take(struct tuning_cache *c, const char *text, size_t n, struct err *e) {
    while (n > 0) {
        CLEANUP(tuning_cache_donep) struct tuning_cache one = { 0 };
        const size_t bytes = table_bytes(text, n);
        TRY(tuning_cache_parse(text, bytes, &one, e));
        if (strcmp(one.device, c->device) == 0)
            TRY(take_all(c, &one, e));
        text += bytes;
        n -= bytes;
    }
    return ST_OK;
}
