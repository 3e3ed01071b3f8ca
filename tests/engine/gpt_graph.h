/* A GPT of any shape as a graph in fp32, without data to resolve it against. */
#ifndef TESTS_ENGINE_GPT_GRAPH_H
#define TESTS_ENGINE_GPT_GRAPH_H

#include "engine/graph/graph.h"
#include "engine/model/model.h"

MUST_CHECK static inline status_t gpt_graph(const struct gpt_shape *shape, int micro_batch, struct graph **ret,
                                            struct err *e) {
    CLEANUP(graph_freep) struct graph *g = graph_new(DTYPE_F32);
    g->micro_batch = micro_batch;
    TRY(model_gpt.build(shape, &(struct model_data){ 0 }, g, e));
    TRY(graph_differentiate(g, e));
    *ret = take_ptr(&g);
    return ST_OK;
}

#endif
