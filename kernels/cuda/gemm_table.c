#include "kernels/cuda/gemm_table.h"

#include <inttypes.h>
#include <string.h>

static const char heading[] = "trainyard products 1", device_before[] = "on ";

enum { NUMBERS = 7, HEX_DIGITS = 16 * GEMM_ALGORITHM_WORDS, FLAGS = 6, LINE_BYTES = 408 };
_Static_assert((GEMM_CHOICES_MOST + ENGINE_CHOICES_MOST + 2) * LINE_BYTES < KERNELS_RECORD_BYTES, "the text fits");
static const char *const flag_name[FLAGS] = { "a_transposed", "b_transposed", "accumulate", "c_fp32", "bias", "gelu" };
static const char *const precision_name[] = {
    [KERNELS_FP32] = "fp32", [KERNELS_BF16] = "bf16", [KERNELS_FP16] = "fp16"
};
static const char *const pass_name[] = {
    [ENGINE_FORWARD] = "convolution", [ENGINE_INPUT] = "convolution-input", [ENGINE_WEIGHT] = "convolution-weight"
};

void gemm_table_done(struct gemm_table *t) {
    free(t->choices);
    free(t->engines);
    *t = (struct gemm_table){ 0 };
}

bool gemm_product_equal(const struct gemm_product *a, const struct gemm_product *b) {
    return a->precision == b->precision && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->alignment == b->alignment && a->flags == b->flags;
}

const struct gemm_choice *gemm_table_find(const struct gemm_table *t, const struct gemm_product *p) {
    for (size_t i = 0; i < t->n; i++)
        if (gemm_product_equal(&t->choices[i].product, p))
            return &t->choices[i];
    return NULL;
}

const struct engine_choice *gemm_table_engine(const struct gemm_table *t, const struct engine_choice *like) {
    for (size_t i = 0; i < t->n_engines; i++) {
        const struct engine_choice *c = &t->engines[i];
        if (c->pass == like->pass && c->precision == like->precision && c->version == like->version &&
            c->room == like->room && memcmp(c->dims, like->dims, sizeof c->dims) == 0)
            return c;
    }
    return NULL;
}

/* The array with room for one more than n; NULL: no memory, and it is as it was. */
static void *grown(void *array, size_t n, size_t *room, size_t each, struct err *e) {
    const size_t more = *room ? 2 * *room : 16;
    void *const larger = n < *room ? array : realloc(array, more * each);
    if (!larger)
        status_ignore(err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the table of matrix products"));
    else if (n == *room)
        *room = more;
    return larger;
}

status_t gemm_table_add(struct gemm_table *t, const struct gemm_choice *choice, struct err *e) {
    if (t->n == GEMM_CHOICES_MOST)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a run has more than %d different matrix products", GEMM_CHOICES_MOST);
    void *const more = grown(t->choices, t->n, &t->room, sizeof *choice, e);
    if (!more)
        return ST_RESOURCE_EXHAUSTED;
    t->choices = more;
    t->choices[t->n++] = *choice;
    return ST_OK;
}

status_t gemm_table_add_engine(struct gemm_table *t, const struct engine_choice *choice, struct err *e) {
    if (t->n_engines == ENGINE_CHOICES_MOST)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a run has more than %d different convolutions", ENGINE_CHOICES_MOST);
    void *const more = grown(t->engines, t->n_engines, &t->engines_room, sizeof *choice, e);
    if (!more)
        return ST_RESOURCE_EXHAUSTED;
    t->engines = more;
    t->engines[t->n_engines++] = *choice;
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

static void write_choice(FILE *f, const struct gemm_choice *c) {
    const struct gemm_product *p = &c->product;
    fprintf(f, "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " ",
            precision_name[p->precision], p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->alignment);
    write_flags(f, p->flags);
    fputs(" ", f);
    for (int i = 0; i < GEMM_ALGORITHM_WORDS; i++)
        fprintf(f, "%016" PRIx64, c->algorithm[i]);
    fprintf(f, " %" PRIu64 "\n", c->workspace);
}

static void write_engine(FILE *f, const struct engine_choice *c) {
    fprintf(f, "%s %s", pass_name[c->pass], precision_name[c->precision]);
    for (int i = 0; i < ENGINE_DIMS; i++)
        fprintf(f, " %" PRId64, c->dims[i]);
    fprintf(f, " %" PRId64 " %" PRId64 " %s\n", c->version, c->room, c->name);
}

status_t gemm_table_write(const struct gemm_table *t, char **ret, struct err *e) {
    CLEANUP(freep) char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the table of matrix products");
    fprintf(f, "%s\n%s%s\n", heading, device_before, t->device);
    for (size_t i = 0; i < t->n; i++)
        write_choice(f, &t->choices[i]);
    for (size_t i = 0; i < t->n_engines; i++)
        write_engine(f, &t->engines[i]);
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the table of matrix products");
    *ret = take_ptr(&text);
    return ST_OK;
}

/* --- reading ---*/

/* What is left of a line. */
struct rest {
    const char *at, *end;
};

/* The next word; empty at the end. */
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

/* A decimal number below 2^62, in the one way of writing it. */
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

static bool algorithm(struct rest w, uint64_t ret[GEMM_ALGORITHM_WORDS]) {
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

static bool choice(struct rest line, struct gemm_choice *c) {
    struct gemm_product *p = &c->product;
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
    return number(word(&line), &c->version) && number(word(&line), &c->room) && engine_name(word(&line), c->name) &&
           line.at == line.end;
}

/* Line 2. Kept as it is: it is compared, and never more than printed. */
static bool device(struct rest line, struct gemm_table *t) {
    const size_t before = sizeof device_before - 1, n = (size_t)(line.end - line.at);
    if (n <= before || n - before >= sizeof t->device || memcmp(line.at, device_before, before) != 0 ||
        memchr(line.at, 0, n))
        return false;
    memcpy(t->device, line.at + before, n - before);
    return true;
}

/* A line that chooses. */
static status_t take_line(struct rest line, int line_number, struct gemm_table *t, struct err *e) {
    struct gemm_choice c = { 0 };
    struct engine_choice of_engine = { 0 };
    const bool product = choice(line, &c);
    if (!product && !engine(line, &of_engine))
        return err_set(e, ST_INVALID_ARGUMENT, "line %d of a table of matrix products is not one", line_number);
    if (product ? gemm_table_find(t, &c.product) != NULL : gemm_table_engine(t, &of_engine) != NULL)
        return err_set(e, ST_INVALID_ARGUMENT, "line %d of a table of matrix products names a product again",
                       line_number);
    return product ? gemm_table_add(t, &c, e) : gemm_table_add_engine(t, &of_engine, e);
}

status_t gemm_table_parse(const char *text, size_t n, struct gemm_table *ret, struct err *e) {
    CLEANUP(gemm_table_donep) struct gemm_table t = { 0 };
    const char *end = text + n;
    int line_number = 0;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const struct rest line = { at, newline ? newline : end };
        line_number++;
        if (!newline || (line_number == 1 && !is(line, heading)) || (line_number == 2 && !device(line, &t)))
            return err_set(e, ST_INVALID_ARGUMENT, "line %d of a table of matrix products is not one", line_number);
        if (line_number > 2)
            TRY(take_line(line, line_number, &t, e));
        at = newline + 1;
    }
    if (line_number < 2)
        return err_set(e, ST_INVALID_ARGUMENT, "a table of matrix products ends before its second line");
    *ret = t;
    t = (struct gemm_table){ 0 };
    return ST_OK;
}

/* Bytes of the first of several tables: up to the next heading. */
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

static status_t take_choices(struct gemm_table *t, const struct gemm_table *from, struct err *e) {
    for (size_t i = 0; i < from->n; i++)
        if (!gemm_table_find(t, &from->choices[i].product))
            TRY(gemm_table_add(t, &from->choices[i], e));
    for (size_t i = 0; i < from->n_engines; i++)
        if (!gemm_table_engine(t, &from->engines[i]))
            TRY(gemm_table_add_engine(t, &from->engines[i], e));
    return ST_OK;
}

status_t gemm_table_take(struct gemm_table *t, const char *text, size_t n, struct err *e) {
    while (n > 0) {
        CLEANUP(gemm_table_donep) struct gemm_table one = { 0 };
        const size_t bytes = table_bytes(text, n);
        TRY(gemm_table_parse(text, bytes, &one, e));
        if (strcmp(one.device, t->device) == 0)
            TRY(take_choices(t, &one, e));
        text += bytes;
        n -= bytes;
    }
    return ST_OK;
}
