/* The id of an artifact is the name of its collection, so that a question by id can be answered with the name.
 *
 * Clients of 2024 first ask which members the input of createArtifact has, and send only those. */
#include "executor/program/tracking/wandb_artifacts.h"

#include "tracking/json.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 200, URL_BYTES = 256 };

struct question {
    struct points *points;
    const json_t *variables;
    const char *folder;
};

static const char *text_of(const json_t *variables, const char *name, const char *other) {
    const char *text = json_member_text(variables, name);
    return *text ? text : other;
}

/* The members that createArtifact has had in all releases. */
static json_t *input_fields(const struct question *q) {
    static const char *const names[] = { "entityName", "projectName",     "runName", "artifactTypeName",
                                         "digest",     "digestAlgorithm", "aliases", "artifactCollectionNames",
                                         "metadata",   "description",     "tags" };
    json_t *list = json_array();
    (void)q;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_array_append_new(list, json_pack("{ss}", "name", names[i]));
    return json_pack("{s{sO} s{so}}", "TypeInfo", "inputFields", list, "CreateArtifactInputInfoType", "inputFields",
                     list);
}

static json_t *create(const struct question *q) {
    const json_t *names = json_object_get(q->variables, "artifactCollectionNames");
    const char *name = json_string_value(json_array_get(names, 0));
    if (!name)
        name = text_of(json_object_get(q->variables, "input"), "artifactCollectionName", "artifact");
    points_event(q->points, "tracking_ignored", "the W&B artifact '%.200s' is accepted, but not kept", name);
    return json_pack("{s{s{ss ss s{ss s{ss si}}}}}", "createArtifact", "artifact", "id", name, "state", "COMMITTED",
                     "artifactSequence", "id", name, "latestArtifact", "id", name, "versionIndex", 0);
}

static json_t *use(const struct question *q) {
    return json_pack("{s{s{ss}}}", "useArtifact", "artifact", "id", text_of(q->variables, "artifactID", "artifact"));
}

static json_t *collection(const char *name) {
    return json_pack("{ss ss s{ss ss s{ss}} s{ss}}", "id", name, "name", name, "project", "entityName", "trainyard",
                     "name", "trainyard", "entity", "name", "trainyard", "type", "name", "artifact");
}

static json_t *by_id(const struct question *q) {
    static const char day[] = "2024-01-01T00:00:00";
    const char *name = text_of(q->variables, "id", "artifact");
    char url[URL_BYTES];
    snprintf(url, sizeof url, "%s/manifest/%s", q->folder, name);
    return json_pack("{s{ss so si s[] s[] ss s{ss s{ss}} ss si si ss ss s{ss} sn sn ss s[]}}", "artifact", "id", name,
                     "artifactSequence", collection(name), "versionIndex", 0, "aliases", "labels", "state", "COMMITTED",
                     "currentManifest", "id", "manifest", "file", "directUrl", url, "commitHash", "0", "fileCount", 0,
                     "size", 0, "createdAt", day, "updatedAt", day, "artifactType", "name", "artifact", "description",
                     "metadata", "digest", "0", "tags");
}

/* No name is taken yet. */
static json_t *by_name(const struct question *q) {
    (void)q;
    return json_pack("{s{sn}}", "project", "artifact");
}

static const struct {
    const char *field; /* of the query */
    json_t *(*answer)(const struct question *);
} answers[] = {
    { "inputFields", input_fields }, { "createArtifact(", create }, { "useArtifact(", use },
    { "artifact(id:", by_id },       { "artifact(name:", by_name },
};

json_t *wandb_artifacts_answer(struct points *points, const char *query, const json_t *variables, const char *folder) {
    const struct question q = { points, variables, folder };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strstr(query, answers[i].field))
            return answers[i].answer(&q);
    return NULL;
}

json_t *wandb_artifacts_manifest(const char *path) {
    const char *name = strrchr(path, '/') + 1;
    const char *dash = strncmp(name, "run-", 4) == 0 ? strchr(name + 4, '-') : NULL;
    json_t *contents = json_object();
    if (dash) {
        char file[NAME_BYTES];
        snprintf(file, sizeof file, "%s.table.json", dash + 1);
        json_object_set_new(contents, file, json_pack("{ss si}", "digest", "1B2M2Y8AsgTpgAmY7PhCfg==", "size", 0));
    }
    return json_pack("{si ss s{ss} so}", "version", 1, "storagePolicy", "wandb-storage-policy-v1",
                     "storagePolicyConfig", "storageLayout", "V2", "contents", contents);
}
