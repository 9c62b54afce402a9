// http_gate: what a request or an answer must look like before anything acts on it.
//
// The parser library is lenient where a proxy must be strict, so three checks stand around it:
//   (a) HeadScanner: the raw bytes of the head, as they arrive, before any parser sees them;
//   (b) check_request_head: the parsed head;
//   (c) ChunkDecoder (chunk_decoder.h): the framing of chunked bodies, with a byte budget.
// tests/unit/proto/http_gate_test.cpp keeps the table of raw inputs and their answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "proto/error.h"
#include "proto/http_message.h"
#include "proto/limits.h"

namespace proto {

/// Why the gate refused; a metric label.
enum class GateReason {
    kHeadSyntax,
    kHeadTooLarge,
    kVersion,
    kTarget,
    kHost,
    kLength,
    kTransferCoding,
    kChunkFraming,
    kTrailer,
    kBodyTooLarge,
    kExpectation,
    kHeaderTimeout,
    kBodyTimeout,
    kPlainOnTls,
};
inline constexpr int kGateReasonCount = static_cast<int>(GateReason::kPlainOnTls) + 1;
std::string_view gate_reason_name(GateReason reason);

/// A refusal; the connection is closed after the answer.
struct GateError {
    GateReason reason = GateReason::kHeadSyntax;
    ApiError error;
};

struct HeadLimits {
    std::size_t bytes_max = kHeadBytesMax;
    std::size_t fields_max = kHeadFieldsMax;
};

/// Part (a). Looks at each byte once; fed with the whole buffer so far, again after each arrival.
class HeadScanner {
public:
    enum class Kind { kRequest, kResponse, kTrailer };
    explicit HeadScanner(Kind kind, HeadLimits limits = {}) : kind_(kind), limits_(limits) {}

    struct Done {
        std::size_t skip = 0;  // bytes of one empty line before the head
        std::size_t size = 0;  // bytes of the head after `skip`, final empty line included
    };
    /// None: more bytes are needed.
    tl::expected<std::optional<Done>, GateError> scan(std::string_view bytes);

private:
    tl::expected<void, GateError> end_of_line(std::string_view line);

    Kind kind_;
    HeadLimits limits_;
    std::size_t position_ = 0;    // bytes already looked at
    std::size_t line_begin_ = 0;  // where the current line starts
    std::size_t skip_ = 0;
    std::size_t line_count_ = 0;
};

/// Part (b), requests: splits the target, checks Host, lengths, codings and Expect, and fills the
/// framing fields of `head`. `target` and `version` (10 or 11) are the request line's.
tl::expected<void, GateError> check_request_head(HttpRequestHead& head, std::string_view target,
                                                 int version);

/// How a body is delimited.
struct BodyFraming {
    bool is_chunked = false;
    std::optional<std::uint64_t> content_length;
};
/// Lengths and codings of a head, for both directions.
tl::expected<BodyFraming, GateError> check_framing(const Headers& headers, int version);

/// Whether `host` (a Host field) names this machine as the client reached it, or is in `allowed`.
bool is_host_ours(std::string_view host, std::string_view local_address,
                  const std::vector<std::string>& allowed);

}  // namespace proto
