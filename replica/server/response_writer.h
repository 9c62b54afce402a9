// Updates of choices become an answer, streamed or whole, for both endpoints. Bytes only: who
// sends them, and when, is respond.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "replica/server/generation.h"

namespace replica::server {

/// Either opening, chunk …, closing (streamed), or collect …, body (whole).
class ResponseWriter {
public:
    virtual ~ResponseWriter() = default;
    /// What a stream begins with.
    virtual std::string opening() = 0;
    /// The events for one update; empty when it has nothing to show.
    virtual std::string chunk(const ChoiceUpdate& update) = 0;
    /// Usage, if it was asked for. [DONE] is the sender's.
    virtual std::string closing(const GenerationTotals& totals) = 0;

    virtual void collect(ChoiceUpdate update) = 0;
    virtual std::string body(const GenerationTotals& totals) = 0;
};

std::unique_ptr<ResponseWriter> make_chat_writer(const PreparedRequest& request);
std::unique_ptr<ResponseWriter> make_text_writer(const PreparedRequest& request);

/// Whether an end is one that the client reads as a finish reason.
inline bool is_clean(const ChoiceEnd& end) {
    return end.finish_reason != "error" && end.finish_reason != "cancelled";
}

}  // namespace replica::server
