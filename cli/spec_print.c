#include "cli/spec_print.h"

#include "api/codec/text.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 4 << 20 };

status_t spec_print(const Trainyard__V1__JobSpec *spec, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, TEXT_BYTES);
    TRY(codec_print_yaml(&spec->base, &text, e));
    printf("\nspec:\n");
    for (const char *line = text.data; *line;) {
        size_t n = strcspn(line, "\n");
        printf("  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    return ST_OK;
}
