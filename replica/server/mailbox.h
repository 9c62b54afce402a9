// The one crossing from the engine thread to the I/O thread for a request: updates of its choices,
// merged while the reader is busy, with a bound on what may wait.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "replica/server/choice_text.h"

namespace replica::server {

/// Output of one sequence that waits for a slow client. More than a second of the fastest model.
inline constexpr std::size_t kOutputBytesMax = 256 * 1024;

/// What is new about one choice since the last look.
struct ChoiceUpdate {
    int choice = 0;
    bool has_first_token = false;     // a token has been sampled, even if no text is decided
    std::vector<ChoiceDelta> deltas;  // neighbours of one kind are merged
    std::vector<TokenId> token_ids;
    std::optional<ChoiceEnd> end;
};

/// Appends `delta`, joining it with the last one when both are text of one kind.
void append_delta(std::vector<ChoiceDelta>& deltas, ChoiceDelta delta);
/// What a delta holds on to.
std::size_t held_bytes(const ChoiceDelta& delta);

/// Writers: the engine thread. Reader: the I/O thread.
class Mailbox {
public:
    /// `wake` runs on the writing thread when the mailbox was empty; it must not block.
    explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

    /// False when the choice has more than kOutputBytesMax waiting: its reader is too slow. The
    /// update is kept all the same.
    bool push(ChoiceUpdate update);
    /// All that waits, in the order in which choices became new.
    std::vector<ChoiceUpdate> take();

private:
    std::mutex mutex_;
    std::vector<ChoiceUpdate> waiting_;
    std::function<void()> wake_;
};

}  // namespace replica::server
