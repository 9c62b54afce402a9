#include "tests/support/golden/mtp_entries.h"

#include <algorithm>
#include <utility>

namespace golden {
namespace {

constexpr std::int32_t kEntriesPerStep = 32;

}  // namespace

tl::expected<std::vector<TopTwo>, std::string> MtpEntries::all_visible(
    std::span<const std::int32_t> text) {
    if (!by_token_) {
        SessionOptions options = session_.options();
        options.block_tokens = 1;
        options.sequences = kEntriesPerStep;
        auto opened = ModelSession::open(session_.file().path(), options);
        if (!opened) return tl::unexpected(opened.error());
        by_token_ = *std::move(opened);
    }
    ModelSession& session = *by_token_;
    if (text.size() > static_cast<std::size_t>(session.options().rows_max)) {
        return tl::unexpected("a text of " + std::to_string(text.size()) +
                              " tokens is longer than one step");
    }
    const std::span<const std::int32_t> entries = text.subspan(1);
    session.reset(0);
    session.step({.tokens = text});
    session.step_mtp(0, entries);
    std::vector<TopTwo> tops;
    while (tops.size() < entries.size()) {
        const std::size_t begin = tops.size();
        const std::size_t count = std::min<std::size_t>(kEntriesPerStep, entries.size() - begin);
        const std::span<const float> logits = session.step_mtp_all_visible(entries, begin, count);
        for (std::size_t i = 0; i < count; ++i) {
            tops.push_back(top_two(row_of(logits, i, session.vocabulary())));
        }
    }
    return tops;
}

}  // namespace golden
