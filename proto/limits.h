// limits: the named limits that more than one process must agree on.
//
// A limit that only one process knows lives beside its user; options structs (HttpServerOptions,
// JsonLimits) take their defaults from here. Limits are inclusive: a value equal to the limit is
// accepted.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace proto {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

// HTTP, both directions.
inline constexpr std::size_t kHeadBytesMax = 32 * kKiB;
inline constexpr std::size_t kHeadFieldsMax = 100;
inline constexpr std::size_t kMethodBytesMax = 16;
inline constexpr std::size_t kBodyBytesMin = 4 * kMiB;  // the floor of body_bytes_max()
inline constexpr std::size_t kBodyBytesPerToken = 8;
inline constexpr std::size_t kUnreadBodyBytesMax = 64 * kKiB;  // drained to keep a connection
inline constexpr std::size_t kPipelineBytesMax = 16 * kKiB;    // read ahead of a running request
inline constexpr std::size_t kChunkExtensionBytesMax = 256;
inline constexpr std::size_t kChunkSizeDigitsMax = 16;
inline constexpr std::size_t kChunkFramingBytesFree = 64 * kKiB;  // beyond one per body byte
inline constexpr std::size_t kTrailerBytesMax = 8 * kKiB;
inline constexpr std::size_t kTrailerFieldsMax = 32;
inline constexpr int kInterimAnswersMax = 8;
inline constexpr std::size_t kRequestIdBytesMax = 128;

// JSON request bodies.
inline constexpr int kJsonDepthMax = 128;
inline constexpr std::size_t kJsonMembersMax = 10'000;
inline constexpr std::size_t kJsonValuesMax = 1'000'000;
inline constexpr std::size_t kJsonKeyBytesMax = 256;

// Server-sent events.
inline constexpr std::size_t kSseEventBytesMax = kMiB;
inline constexpr std::chrono::seconds kSsePingInterval{15};

// Request fields (the ranges of single numbers are in the field table, fields.cpp).
inline constexpr std::size_t kMessagesMax = 4096;
inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopStringBytesMax = 512;
inline constexpr std::size_t kStopTokenIdsMax = 64;
inline constexpr std::size_t kLogitBiasMax = 1024;
inline constexpr std::size_t kToolsMax = 128;
inline constexpr std::size_t kToolsBytesMax = kMiB;
inline constexpr std::size_t kToolNameBytesMax = 64;
inline constexpr std::size_t kTemplateKwargsMax = 32;
inline constexpr std::size_t kPromptsMax = 16;
inline constexpr int kChoicesMax = 16;  // `n`
inline constexpr std::size_t kSchemaBytesMax = 256 * kKiB;
inline constexpr int kSchemaDepthMax = 64;
inline constexpr std::size_t kRegexBytesMax = 4 * kKiB;

// Warning headers.
inline constexpr std::size_t kWarningsMax = 8;
inline constexpr std::size_t kWarningBytesMax = 200;

// Ready pipe and announcements: one JSON line.
inline constexpr std::size_t kEventLineBytesMax = 64 * kKiB;

/// The body limit of a replica or a router in front of replicas with this context.
constexpr std::size_t body_bytes_max(std::size_t context_tokens) {
    return std::max(kBodyBytesMin, kBodyBytesPerToken * context_tokens);
}

}  // namespace proto
