// Stop strings, against a search that is plainly right.
//
//   byte 0: seed of the cuts   byte 1: flags   up to NUL: the stop strings, one a line   rest: the
//   text
//
// Holds: the same output and the same match however the text was cut; the match that ends first
// wins, then the longest; what is held back is shorter than the longest stop string.
#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/chat/stop_strings.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

constexpr std::size_t kStringsMax = 16;
constexpr std::size_t kStringBytesMax = 512;

struct Stopped {
    std::string text;
    std::optional<std::string> match;
    bool operator==(const Stopped&) const = default;
};

using Options = replica::chat::StopMatcher::Options;

Stopped expected(std::string_view text, const Options& options) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        const std::string* longest = nullptr;
        for (const std::string& stop : options.strings) {
            const bool is_longer = longest == nullptr || stop.size() > longest->size();
            if (!stop.empty() && is_longer && text.substr(0, end).ends_with(stop)) longest = &stop;
        }
        if (longest == nullptr) continue;
        const std::size_t cut = options.include_stop_string ? 0 : longest->size();
        return {std::string(text.substr(0, end - cut)), *longest};
    }
    return {std::string(text), std::nullopt};
}

Stopped match_pieces(std::string_view text, const Options& options, std::uint64_t seed) {
    std::size_t longest = 0;
    for (const std::string& stop : options.strings)
        longest = std::max(longest, stop.size());
    replica::chat::StopMatcher matcher(options);
    Stopped result;
    std::size_t fed = 0;
    fuzz::in_pieces(text, seed, [&](std::string_view piece) {
        const bool was_matched = matcher.matched();
        const std::string decided = matcher.feed(piece);
        assert((!was_matched || decided.empty()) && "nothing follows a match");
        result.text += decided;
        fed += piece.size();
        if (!matcher.matched()) {
            assert(fed - result.text.size() <= std::max<std::size_t>(longest, 1) - 1);
        }
    });
    result.text += matcher.finish();
    result.match = matcher.match();
    return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint64_t seed = input.byte();
    Options options;
    options.include_stop_string = (input.byte() & 1U) != 0;
    std::string_view strings = input.until('\0');
    while (!strings.empty() && options.strings.size() < kStringsMax) {
        const std::string_view line = strings.substr(0, strings.find('\n'));
        options.strings.emplace_back(line.substr(0, kStringBytesMax));
        strings.remove_prefix(std::min(line.size() + 1, strings.size()));
    }
    const std::string_view text = input.rest();
    const Stopped wanted = expected(text, options);
    assert(match_pieces(text, options, 0) == wanted);
    assert(match_pieces(text, options, seed + 1) == wanted);
    return 0;
}
