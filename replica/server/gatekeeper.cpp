#include "replica/server/gatekeeper.h"

#include <string_view>

#include "proto/status.h"
#include "replica/server/expected_wait.h"

namespace replica::server {
namespace {

using proto::ErrorCode;
using proto::HttpRequestHead;
using proto::HttpResponse;

std::optional<HttpResponse> refused(ErrorCode code, std::string message) {
    return proto::error_response({code, std::move(message), {}, {}, {}});
}

/// In time that does not depend on where the texts differ.
bool equal_secrets(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    }
    return difference == 0;
}

bool is_loopback(std::string_view peer) {
    return peer.starts_with("127.") || peer == "::1" || peer.starts_with("::ffff:127.");
}

bool is_open_to_all(const HttpRequestHead& head) {
    return head.path == "/health" || head.path == "/ready" ||
           (head.path == "/metrics" && is_loopback(head.peer));
}

std::optional<HttpResponse> check_key(const AppState& state, const HttpRequestHead& head) {
    if (!state.internal_key || is_open_to_all(head)) return std::nullopt;
    const auto key = proto::api_key(head.headers);
    if (key && equal_secrets(*key, *state.internal_key)) return std::nullopt;
    return refused(ErrorCode::kInvalidApiKey, "A valid key is needed.");
}

/// The router says whom it means: after a restart another process may listen here.
std::optional<HttpResponse> check_instance(const AppState& state, const HttpRequestHead& head) {
    const auto wanted = head.headers.find(proto::kHeaderInstance);
    if (!wanted || *wanted == state.instance) return std::nullopt;
    constexpr int kMisdirected = 421;
    proto::ApiError error;
    error.code = ErrorCode::kBadRequest;
    error.message = "Another instance answers here now.";
    error.status = kMisdirected;
    HttpResponse response = proto::error_response(error);
    response.close = true;
    return response;
}

std::optional<HttpResponse> check_media_type(const HttpRequestHead& head) {
    const auto type = head.headers.find("content-type");
    if (head.method != "POST" || !type) return std::nullopt;
    std::string_view media = type->substr(0, type->find(';'));
    while (media.ends_with(' ') || media.ends_with('\t'))
        media.remove_suffix(1);
    if (media.empty() || proto::equal_no_case(media, "application/json")) return std::nullopt;
    return refused(ErrorCode::kUnsupportedMediaType, "The body must be application/json.");
}

std::optional<HttpResponse> take_place(AppState& state, HttpRequestHead& head) {
    state.engine_status();  // looks for a wedge
    if (const auto refusal = state.lifecycle.refusal(state.is_wedged)) {
        const bool is_loading = refusal->code == ErrorCode::kLoading;
        state.metrics.count_rejected(is_loading ? "loading" : "draining");
        return proto::error_response(*refusal);
    }
    head.ticket = state.admission.take();
    if (head.ticket != nullptr) {
        state.status_publisher.notify();
        return std::nullopt;
    }
    state.metrics.count_rejected("queue_full");
    return proto::error_response(state.admission.queue_full(
        {.seconds = state.expected_wait_s(), .spread = random_spread()}));
}

}  // namespace

std::optional<HttpResponse> admit(AppState& state, const proto::RouteTable& routes,
                                  HttpRequestHead& head) {
    if (auto response = check_key(state, head)) return response;
    if (auto response = check_instance(state, head)) return response;
    if (auto response = routes.refuse(head.method, head.path)) return response;
    if (auto response = check_media_type(head)) return response;
    const bool is_generation =
        head.path == "/v1/chat/completions" || head.path == "/v1/completions";
    if (is_generation && head.method == "POST") return take_place(state, head);
    return std::nullopt;
}

}  // namespace replica::server
