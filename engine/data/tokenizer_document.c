#include "engine/data/tokenizer_document.h"

#include "engine/data/huggingface.h"

#include <string.h>

static const char HEAD[] = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
                           "\"normalizer\":null,\"post_processor\":null,";

/* One code point is a word of its own. */
static const char CHAR_PARTS[] =
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\s\\\\S]\"},\"behavior\":\"Isolated\","
    "\"invert\":false},\"decoder\":{\"type\":\"Fuse\"},"
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<unk>\",\"vocab\":{";

static const char BYTE_PARTS[] =
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"merges\":[],"
    "\"vocab\":{";

/* "WORD":TOKEN of a word of one code point, in ASCII. */
static status_t put_word(struct bytes *ret, uint32_t c, int token, struct err *e) {
    const char *comma = token ? "," : "";
    if (c >= 0x10000)
        return bytes_printf(ret, e, "%s\"\\u%04x\\u%04x\":%d", comma, 0xd800 + ((c - 0x10000) >> 10),
                            0xdc00 + ((c - 0x10000) & 0x3ff), token);
    return bytes_printf(ret, e, "%s\"\\u%04x\":%d", comma, c, token);
}

status_t tokenizer_document(const struct tokenizer *t, struct bytes *ret, struct err *e) {
    const char *document = tokenizer_huggingface(t);
    if (document)
        return bytes_append(ret, document, strlen(document), e);
    const uint32_t *points = tokenizer_code_points(t);
    TRY(bytes_printf(ret, e, "%s%s", HEAD, points ? CHAR_PARTS : BYTE_PARTS));
    for (int i = 0; i < tokenizer_vocabulary(t); i++)
        TRY(put_word(ret, points ? points[i] : huggingface_letter((uint8_t)i), i, e));
    return bytes_printf(ret, e, "}}}\n");
}

status_t tokenizer_document_config(const struct tokenizer *t, int context, struct bytes *ret, struct err *e) {
    if (tokenizer_kind_of(t) == TOKENIZER_BPE)
        return ST_OK;
    return bytes_printf(ret, e,
                        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"clean_up_tokenization_spaces\":false,"
                        "\"model_max_length\":%d}\n",
                        context);
}

const char *tokenizer_kind_name(const struct tokenizer *t) {
    static const char *const names[] = {
        [TOKENIZER_CHAR] = "char", [TOKENIZER_BYTE] = "byte", [TOKENIZER_BPE] = "bpe"
    };
    return names[tokenizer_kind_of(t)];
}
