#include "router/trace_context.h"

#include <algorithm>
#include <cstdint>
#include <random>

namespace router {
namespace {

constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kSpanAt = kTraceAt + kTraceDigits + 1;
constexpr std::size_t kFlagsAt = kSpanAt + kSpanDigits + 1;
constexpr std::size_t kLength = kFlagsAt + 2;
constexpr std::size_t kTracestateBytesMax = 512;

bool is_hex(std::string_view text) {
    return std::ranges::all_of(
        text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
    return text.find_first_not_of('0') == std::string_view::npos;
}

/// 16 hex digits, not all zero. Ids need to differ, not to be secret.
std::string random_digits() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    std::uint64_t value = random();
    while (value == 0)
        value = random();
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text(kSpanDigits, '0');
    for (char& digit : text) {
        digit = kHex[value & 0xFU];
        value >>= 4U;
    }
    return text;
}

/// Several fields are one list, in their order. Empty when there is none or it is too long.
std::string whole_tracestate(const proto::Headers& headers) {
    std::string whole;
    for (const proto::Headers::Field& field : headers) {
        if (!proto::equal_no_case(field.name, "tracestate") || field.value.empty()) continue;
        if (!whole.empty()) whole += ',';
        whole += field.value;
        if (whole.size() > kTracestateBytesMax) return {};
    }
    return whole;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
    if (text.size() < kLength) return std::nullopt;
    const std::string_view version = text.substr(0, 2);
    const std::string_view trace = text.substr(kTraceAt, kTraceDigits);
    const std::string_view span = text.substr(kSpanAt, kSpanDigits);
    const std::string_view flags = text.substr(kFlagsAt, 2);
    if (!is_hex(version) || version == "ff" || !is_hex(trace) || is_zero(trace) || !is_hex(span) ||
        is_zero(span) || !is_hex(flags)) {
        return std::nullopt;
    }
    for (const std::size_t dash : {kTraceAt - 1, kSpanAt - 1, kFlagsAt - 1}) {
        if (text[dash] != '-') return std::nullopt;
    }
    // A later version may have more fields; this one has not.
    if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return std::nullopt;
    constexpr std::string_view kOddDigits = "13579bdf";
    return TraceContext{.trace_id = std::string(trace),
                        .is_sampled = kOddDigits.find(flags[1]) != std::string_view::npos,
                        .is_from_client = true};
}

TraceContext trace_of(const proto::Headers& headers) {
    if (headers.count("traceparent") == 1) {
        if (auto trace = parse_traceparent(headers.get("traceparent"))) return std::move(*trace);
    }
    return {.trace_id = random_digits() + random_digits()};
}

std::string make_traceparent(const TraceContext& trace) {
    return "00-" + trace.trace_id + "-" + random_digits() + (trace.is_sampled ? "-01" : "-00");
}

void add_trace(proto::Headers& upstream, const TraceContext& trace, const proto::Headers& client) {
    upstream.add("traceparent", make_traceparent(trace));
    if (!trace.is_from_client) return;
    std::string state = whole_tracestate(client);
    if (!state.empty()) upstream.add("tracestate", std::move(state));
}

}  // namespace router
