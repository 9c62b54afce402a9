// Updates of choices become an answer, streamed or whole, for both endpoints. Bytes only: who
// sends them, and when, is respond.h.
//
// What is the same for both lives in ResponseWriter: which chunk carries the token ids and the
// log-probabilities, and how choices are put together. The two endpoints differ in their JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "replica/server/generation.h"

namespace replica::server {

/// One choice of a whole answer, as far as it is known; or what one chunk of a stream shows.
struct ChoiceParts {
    std::vector<ChoiceDelta> deltas;
    std::vector<TokenId> token_ids;
    std::string finish_reason;  // empty while it goes on
    proto::StopReason stop_reason;
};

/// Either opening, chunk …, closing (streamed), or collect …, body (whole). I/O thread.
class ResponseWriter {
public:
    explicit ResponseWriter(const PreparedRequest& request);
    virtual ~ResponseWriter() = default;
    ResponseWriter(const ResponseWriter&) = delete;
    ResponseWriter& operator=(const ResponseWriter&) = delete;

    /// What a stream begins with.
    virtual std::string opening() = 0;
    /// The events for one update; empty when it has nothing to show.
    std::string chunk(const ChoiceUpdate& update);
    /// Usage, if it was asked for. [DONE] is the sender's.
    std::string closing(const GenerationTotals& totals);

    void collect(ChoiceUpdate update);
    std::string body(const GenerationTotals& totals);

protected:
    using Timings = std::optional<proto::Timings>;

    /// JSON of a chunk: one delta, or the end of a choice.
    virtual std::string part_json(int choice, const ChoiceParts& part) = 0;
    virtual std::string usage_json(const proto::Usage& usage, const Timings& timings) = 0;
    /// JSON of the whole answer.
    virtual std::string body_json(std::vector<ChoiceParts> choices, const proto::Usage& usage,
                                  const Timings& timings) = 0;

    const proto::ResponseHead head_;
    const bool include_usage_, include_timings_, return_token_ids_, wants_logprobs_;

private:
    Timings timings(const GenerationTotals& totals) const;

    std::vector<ChoiceParts> choices_;  // whole answers; in streams the ids that wait for a chunk
};

/// The tokenizer outlives the writer; it spells the entries of log-probabilities.
std::unique_ptr<ResponseWriter> make_chat_writer(const PreparedRequest& request,
                                                 const Tokenizer& tokenizer);
std::unique_ptr<ResponseWriter> make_text_writer(const PreparedRequest& request,
                                                 const Tokenizer& tokenizer);

/// An entry as the wire has it; control tokens are spelled out.
proto::TokenLogprob wire_logprob(const TokenEntry& entry, const Tokenizer& tokenizer);

}  // namespace replica::server
