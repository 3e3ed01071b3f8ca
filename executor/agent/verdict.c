#include "executor/agent/verdict.h"

#include <stdio.h>

void verdict_reach(const struct verdict_facts *facts, struct verdict *ret) {
    char *const sentence = ret->sentence;
    ret->by_word = facts->word && facts->how->signal == 0;
    ret->cause = ret->by_word ? facts->word->cause : reap_cause(facts->how);
    reap_sentence(facts->how, facts->killed_because, sentence, VERDICT_SENTENCE_BYTES);
    if (ret->by_word && *facts->word->message)
        snprintf(sentence, VERDICT_SENTENCE_BYTES, "%s", facts->word->message);
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        return;
    if (facts->device_lost) {
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__DEVICE_LOST;
        snprintf(sentence, VERDICT_SENTENCE_BYTES, "lost its GPU %d, which is quarantined: %s", facts->device,
                 facts->device_lost);
    }
    if (facts->leaving) {
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
        snprintf(sentence, VERDICT_SENTENCE_BYTES, "stopped because its executor was told to leave");
    }
}
