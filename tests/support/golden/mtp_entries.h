// The MTP block's answers for each entry of a text, in the two readings golden files come in.
//
// A decoder's entry p attends to entries 0..p. Files made in one pass without a causal mask hold,
// for all but the last entry, what the block says when it sees every entry of the text. Both are
// the same arithmetic over different rows, and both are checked exactly: a file must agree with one
// of the two throughout a text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "tests/support/golden/logits.h"
#include "tests/support/golden/model_session.h"

namespace golden {

class MtpEntries {
public:
    explicit MtpEntries(const ModelSession& session) : session_(session) {}

    /// Each entry seeing all entries of the text. Opens a session of its own at the first call.
    tl::expected<std::vector<TopTwo>, std::string> all_visible(std::span<const std::int32_t> text);

private:
    const ModelSession& session_;
    std::unique_ptr<ModelSession> by_token_;  // pages of one token
};

}  // namespace golden
