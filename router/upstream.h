// What the router says to replicas and how it reads their failures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/http_client.h"
#include "proto/http_message.h"
#include "proto/status.h"
#include "router/breaker.h"
#include "router/config.h"
#include "router/metrics.h"

namespace router {

/// Headers of the router's own requests: the internal key, where there is one.
[[nodiscard]] proto::Headers internal_headers(const Config& config);

/// Headers of a forwarded request: those of the client that are on the allow-list, and ours.
struct ForwardHeaders {
    std::string instance;  // expected
    std::string dispatch;  // id of this attempt; empty: no dispatch, only a question
    int priority = 0;
};
[[nodiscard]] proto::Headers forward_headers(const Config& config,
                                             const proto::HttpRequestHead& client,
                                             const ForwardHeaders& ours);

/// Headers of a replica's answer that reach the client; Retry-After within its limit or not at all.
[[nodiscard]] proto::Headers answer_headers(const proto::Headers& upstream);
/// Whether an answer sends the client away without saying when to come back.
[[nodiscard]] bool lacks_retry_after(int status, const proto::Headers& headers);

/// The process is not there: nobody listens, or the socket's keeper closes at once. The word of a
/// poll; on an attempt only a refused connection says so much.
[[nodiscard]] bool is_gone(proto::ClientErrorKind kind);

/// What an attempt came to before any byte of it reached the client.
enum class AttemptResult : std::uint8_t {
    kAnswer,   // to be relayed, whatever its status
    kRefused,  // cannot have been executed: another replica, no budget
    kBusy,     // 429 or 503: another replica once, then the front of the queue
    kLost,     // may have been executed: one more try, from the budget
};
[[nodiscard]] AttemptResult judge(const proto::ClientError& error);
[[nodiscard]] AttemptResult judge_status(int status);

/// The same as a word about the replica, for its breaker. `by_us`: cancelled by us on the way out.
[[nodiscard]] AttemptVerdict verdict_of(const proto::ClientError& error, bool by_us);
[[nodiscard]] AttemptVerdict verdict_of(int status);
[[nodiscard]] AttemptVerdict verdict_of(AttemptOutcome outcome);

/// Seconds a replica may ask for; a longer Retry-After is cut to this, towards the client too.
inline constexpr std::int64_t kRetryAfterMax = 3600;

/// A decimal header value of digits only, at most `most`; `fallback` when it is none.
struct NumberLimits {
    std::int64_t fallback = 0;
    std::int64_t most = proto::kReportedTokensMax;
};
[[nodiscard]] std::int64_t header_number(const proto::Headers& headers, std::string_view name,
                                         NumberLimits limits = {});

}  // namespace router
