#include "router/upstream.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "proto/status.h"

namespace router {
namespace {

constexpr std::array<std::string_view, 2> kRequestAllowed = {"content-type", "accept"};
constexpr std::array<std::string_view, 3> kAnswerAllowed = {"content-type", "cache-control",
                                                            "x-quadriga-instance"};
constexpr std::string_view kRetryAfter = "retry-after";

}  // namespace

proto::Headers internal_headers(const Config& config) {
    proto::Headers headers;
    if (!config.internal_key.empty()) {
        headers.add("authorization", "Bearer " + config.internal_key);
    }
    headers.add(std::string(proto::kHeaderHop), "router");
    return headers;
}

proto::Headers forward_headers(const Config& config, const proto::HttpRequestHead& client,
                               const ForwardHeaders& ours) {
    proto::Headers headers = internal_headers(config);
    for (const std::string_view name : kRequestAllowed) {
        const std::string_view value = client.headers.get(name);
        if (value.empty()) continue;
        headers.add(std::string(name), std::string(value));
    }
    headers.add(std::string(proto::kHeaderRequestId), client.request_id);
    headers.add(std::string(proto::kHeaderInstance), ours.instance);
    if (!ours.dispatch.empty()) {
        headers.add(std::string(proto::kHeaderDispatch), ours.dispatch);
        headers.add(std::string(proto::kHeaderPriority), std::to_string(ours.priority));
    }
    return headers;
}

proto::Headers answer_headers(const proto::Headers& upstream) {
    proto::Headers headers;
    for (const std::string_view name : kAnswerAllowed) {
        if (const auto value = upstream.find(name)) {
            headers.add(std::string(name), std::string(*value));
        }
    }
    const std::int64_t wait_s =
        header_number(upstream, kRetryAfter, {.fallback = -1, .most = kRetryAfterMax});
    if (wait_s >= 0) headers.add(std::string(kRetryAfter), std::to_string(wait_s));
    for (const proto::Headers::Field& field : upstream) {  // there may be several
        if (proto::equal_no_case(field.name, proto::kHeaderWarning)) {
            headers.add(field.name, field.value);
        }
    }
    return headers;
}

bool lacks_retry_after(int status, const proto::Headers& headers) {
    return (status == 429 || status == 503) && headers.get(kRetryAfter).empty();
}

bool is_gone(proto::ClientErrorKind kind) {
    return kind == proto::ClientErrorKind::kRefused ||
           kind == proto::ClientErrorKind::kClosedWithoutAnswer;
}

AttemptResult judge(const proto::ClientError& error) {
    if (!error.was_sent) return AttemptResult::kRefused;
    switch (error.kind) {
        case proto::ClientErrorKind::kRefused:
        case proto::ClientErrorKind::kConnectTimeout:
        case proto::ClientErrorKind::kPoolFull:
            return AttemptResult::kRefused;
        case proto::ClientErrorKind::kReset:
        case proto::ClientErrorKind::kClosedWithoutAnswer:
        case proto::ClientErrorKind::kMalformed:
        case proto::ClientErrorKind::kTimeout:
        case proto::ClientErrorKind::kCancelled:
            return AttemptResult::kLost;
    }
    return AttemptResult::kLost;
}

AttemptResult judge_status(int status) {
    switch (status) {
        case 421:  // not the instance we meant
            return AttemptResult::kRefused;
        case 429:
        case 503:
            return AttemptResult::kBusy;
        case 500:
        case 502:
        case 504:
            return AttemptResult::kLost;
        default:
            return AttemptResult::kAnswer;
    }
}

AttemptVerdict verdict_of(const proto::ClientError& error, bool by_us) {
    switch (error.kind) {
        case proto::ClientErrorKind::kPoolFull:
            return AttemptVerdict::kNeutral;
        case proto::ClientErrorKind::kCancelled:  // by us: the replica was lost, or we leave
            return by_us ? AttemptVerdict::kNeutral : AttemptVerdict::kFault;
        case proto::ClientErrorKind::kClosedWithoutAnswer:
            // A kept connection may have been closed in the moment it was taken.
            return error.was_reused ? AttemptVerdict::kNeutral : AttemptVerdict::kFault;
        default:
            return AttemptVerdict::kFault;
    }
}

AttemptVerdict verdict_of(int status) {
    if (status == 500 || status == 502 || status == 504) return AttemptVerdict::kFault;
    if (status >= 500) return AttemptVerdict::kNeutral;
    return status >= 400 ? AttemptVerdict::kNoFault : AttemptVerdict::kGood;
}

AttemptVerdict verdict_of(AttemptOutcome outcome) {
    switch (outcome) {
        case AttemptOutcome::kOk:
            return AttemptVerdict::kGood;
        case AttemptOutcome::kClientError:
            return AttemptVerdict::kNoFault;
        case AttemptOutcome::kRefused:
        case AttemptOutcome::kLost:
            return AttemptVerdict::kFault;
        case AttemptOutcome::kBusy:
        case AttemptOutcome::kAborted:
            break;
    }
    return AttemptVerdict::kNeutral;
}

std::int64_t header_number(const proto::Headers& headers, std::string_view name,
                           NumberLimits limits) {
    const std::string_view text = headers.get(name);
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
        return limits.fallback;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() ? std::min(value, limits.most) : limits.most;
}

}  // namespace router
