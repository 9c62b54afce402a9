#include "router/guess_guard.h"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

namespace router {
namespace {

std::string source_of(std::string_view peer) {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(std::string(peer), error);
    if (error || !address.is_v6() || address.to_v6().is_v4_mapped()) return std::string(peer);
    const auto bytes = address.to_v6().to_bytes();
    return {bytes.begin(), bytes.begin() + 8};
}

}  // namespace

std::optional<int> GuessGuard::wait_s(std::string_view peer, Clock::time_point now) const {
    const auto at = sources_.find(source_of(peer));
    if (at == sources_.end() || at->second.wrong < kWrongMax) return std::nullopt;
    const auto left = at->second.since + kWindow - now;
    if (left <= Clock::duration::zero()) return std::nullopt;
    return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(left).count());
}

bool GuessGuard::note_wrong(std::string_view peer, Clock::time_point now) {
    const std::string name = source_of(peer);
    if (!sources_.contains(name)) make_room(now);
    Source& source = sources_[name];
    if (source.wrong == 0 || now - source.since >= kWindow) source = {.wrong = 0, .since = now};
    if (++source.wrong != kWrongMax) return false;
    source.since = now;
    return true;
}

void GuessGuard::make_room(Clock::time_point now) {
    if (sources_.size() < kSourcesMax) return;
    std::erase_if(sources_, [now](const auto& one) { return now - one.second.since >= kWindow; });
    if (sources_.size() < kSourcesMax) return;
    sources_.erase(std::min_element(
        sources_.begin(), sources_.end(),
        [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
}

}  // namespace router
