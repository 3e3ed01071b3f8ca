/* Answers to a W&B client's questions about artifacts, and so about tables, which are artifacts: each artifact is one
 * that exists already, so that the client sends no files and goes on. Nothing is kept; an event reports each artifact.
 *
 * query: the text of a GraphQL request, with its variables. folder: the URL below which the artifacts' files would be.
 * Returns the data of the answer; NULL: the query is not about artifacts. */
#ifndef EXECUTOR_PROGRAM_TRACKING_WANDB_ARTIFACTS_H
#define EXECUTOR_PROGRAM_TRACKING_WANDB_ARTIFACTS_H

#include "executor/program/tracking/points.h"

#include <jansson.h>

json_t *wandb_artifacts_answer(struct points *points, const char *query, const json_t *variables, const char *folder);
/* The manifest of an artifact, which clients of 2024 read from FOLDER/manifest/NAME. It has no files, but the table of
 * a run's table, run-ID-KEY: the client looks for it by name, and does not read it. */
json_t *wandb_artifacts_manifest(const char *path);

#endif
