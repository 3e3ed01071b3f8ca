/* What a file contains by its name, a path or a URI. Internal to this folder; spec_text_format of spec.h is in
 * file_kind.c. */
#ifndef API_SPEC_FILE_KIND_H
#define API_SPEC_FILE_KIND_H

/* Why a file with this name cannot be trained on as text, and what to do: "holds ...; ..."; NULL if it can. Static. */
const char *file_kind_not_text(const char *path);

#endif
