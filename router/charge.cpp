#include "router/charge.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace router {

void Account::on_report(Clock::time_point now, int reported_sequences) {
    const auto is_old = [now](const Entry& entry) { return now - *entry.sent_at >= kReportLag; };
    int own = 0;
    int own_old = 0;
    for (const Entry& entry : entries_) {
        if (!entry.sent_at || entry.is_done) continue;
        own += entry.sequences;
        if (is_old(entry)) own_old += entry.sequences;
    }
    // What ended here without a done event yet may still be counted.
    std::erase_if(ended_,
                  [now](const Entry& entry) { return now - entry.ended_at >= kUnreportedEndMax; });
    int ended = 0;
    for (const Entry& entry : ended_)
        ended += entry.sequences;
    // Others' sequences are what ours cannot explain; within that, what they were before.
    foreign_sequences_ =
        std::clamp(foreign_sequences_, std::max(0, reported_sequences - own - ended),
                   std::max(0, reported_sequences - own_old));
    const int room_for_old = reported_sequences - foreign_sequences_;
    const int room_for_young = room_for_old - ended;
    int contained = 0;
    for (Entry& entry : entries_) {  // in order of dispatch
        if (!entry.sent_at || entry.is_done) continue;
        const int room = is_old(entry) ? room_for_old : room_for_young;
        if (!entry.is_seen && contained + entry.sequences > room) continue;
        contained += entry.sequences;
        if (entry.is_seen) continue;
        entry.is_seen = true;
        unseen_tokens_ -= entry.prefill_tokens;
        unseen_blocks_ -= entry.blocks;
    }
    assert(unseen_tokens_ >= 0 && unseen_blocks_ >= 0 && "charges are seen once");

    gone_tokens_ = 0;
    for (const Entry& entry : ended_) {
        if (now - entry.prefilled_at < kUnreportedEndMax) gone_tokens_ += entry.prompt_tokens;
    }
    for (const Entry& entry : entries_) {
        const bool is_fresh = entry.is_prefilled && now - entry.prefilled_at < kPrefillLag;
        if (is_fresh) gone_tokens_ += entry.prompt_tokens;
    }
}

std::int64_t Account::queued_tokens(std::int64_t reported) const {
    const std::int64_t ours_waiting = prefill_tokens_ - unseen_tokens_;
    return std::max(reported - gone_tokens_, std::min(reported, ours_waiting));
}

void Account::on_done(std::uint64_t number) {
    const auto has_number = [number](const Entry& entry) { return entry.number == number; };
    if (std::erase_if(ended_, has_number) > 0) return;
    const auto entry = std::find_if(entries_.begin(), entries_.end(), has_number);
    if (entry != entries_.end()) entry->is_done = true;
}

void Account::on_nothing_queued(Clock::time_point now) {
    for (Entry& entry : entries_) {
        if (entry.is_seen && now - *entry.sent_at >= kReportLag) release_prefill(entry);
    }
}

void Account::release_prefill(Entry& entry) {
    entry.is_prefilled = true;
    prefill_tokens_ -= entry.prefill_tokens;
    if (!entry.is_seen) unseen_tokens_ -= entry.prefill_tokens;
    entry.prefill_tokens = 0;
    assert(prefill_tokens_ >= 0 && unseen_tokens_ >= 0 && "a charge is released once");
}

void Account::end(Entries::iterator entry, Clock::time_point now) {
    release_prefill(*entry);
    output_tokens_ -= entry->output_tokens;
    blocks_ -= entry->blocks;
    if (!entry->is_seen) unseen_blocks_ -= entry->blocks;
    assert(output_tokens_ >= 0 && blocks_ >= 0 && unseen_blocks_ >= 0 &&
           "a charge is released once");
    if (!entry->sent_at || entry->is_done) {
        entries_.erase(entry);
        return;
    }
    entry->ended_at = now;
    ended_.splice(ended_.end(), entries_, entry);
}

Charge::Charge(std::shared_ptr<Account> account, Amount amount) : account_(std::move(account)) {
    assert(account_ != nullptr && amount.prefill_tokens >= 0 && amount.output_tokens >= 0 &&
           amount.blocks >= 0);
    entry_ = account_->entries_.insert(account_->entries_.end(),
                                       {.prefill_tokens = amount.prefill_tokens,
                                        .output_tokens = amount.output_tokens,
                                        .blocks = amount.blocks,
                                        .sent_at = {},
                                        .sequences = amount.sequences,
                                        .number = account_->next_number_++,
                                        .prompt_tokens = amount.prefill_tokens,
                                        .prefilled_at = {},
                                        .ended_at = {}});
    account_->prefill_tokens_ += amount.prefill_tokens;
    account_->unseen_tokens_ += amount.prefill_tokens;
    account_->output_tokens_ += amount.output_tokens;
    account_->blocks_ += amount.blocks;
    account_->unseen_blocks_ += amount.blocks;
}

Charge::Charge(Charge&& other) noexcept
    : account_(std::exchange(other.account_, nullptr)), entry_(other.entry_) {}

Charge& Charge::operator=(Charge&& other) noexcept {
    if (this != &other) {
        release();
        account_ = std::exchange(other.account_, nullptr);
        entry_ = other.entry_;
    }
    return *this;
}

void Charge::mark_sent(Clock::time_point now) {
    if (account_ != nullptr) entry_->sent_at = now;
}

void Charge::mark_first_byte(Clock::time_point now, std::optional<std::int64_t> prompt_tokens) {
    if (account_ == nullptr) return;
    account_->release_prefill(*entry_);
    entry_->prefilled_at = now;
    if (prompt_tokens) entry_->prompt_tokens = *prompt_tokens;
    if (entry_->is_seen) account_->gone_tokens_ += entry_->prompt_tokens;
}

void Charge::mark_output(std::int64_t tokens) {
    if (account_ == nullptr) return;
    const std::int64_t least = std::min<std::int64_t>(entry_->output_tokens, entry_->sequences);
    const std::int64_t come = std::clamp<std::int64_t>(tokens, 0, entry_->output_tokens - least);
    entry_->output_tokens -= come;
    account_->output_tokens_ -= come;
}

void Charge::release(Clock::time_point now) {
    if (account_ == nullptr) return;
    const std::shared_ptr<Account> account = std::exchange(account_, nullptr);
    const bool was_waiting = !entry_->is_prefilled;
    if (was_waiting) {
        entry_->prefilled_at = now;  // it is gone, so its prompt waits no more
        if (entry_->is_seen) account->gone_tokens_ += entry_->prompt_tokens;
    }
    account->end(entry_, now);
}

Permit::Permit(std::shared_ptr<Account> account, int sequences)
    : account_(std::move(account)), sequences_(sequences) {
    assert(account_ != nullptr && sequences_ > 0);
    account_->sequences_ += sequences_;
}

Permit::Permit(Permit&& other) noexcept
    : account_(std::exchange(other.account_, nullptr)),
      sequences_(std::exchange(other.sequences_, 0)) {}

Permit& Permit::operator=(Permit&& other) noexcept {
    if (this != &other) {
        release();
        account_ = std::exchange(other.account_, nullptr);
        sequences_ = std::exchange(other.sequences_, 0);
    }
    return *this;
}

void Permit::release() {
    if (account_ == nullptr) return;
    const std::shared_ptr<Account> account = std::exchange(account_, nullptr);
    account->sequences_ -= std::exchange(sequences_, 0);
    assert(account->sequences_ >= 0 && "a permit is released once");
}

}  // namespace router
