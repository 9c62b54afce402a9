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
        if (!entry.sent_at) continue;
        own += entry.sequences;
        if (is_old(entry)) own_old += entry.sequences;
    }
    // What ended since the last report may still be counted in this one.
    const int ended = std::exchange(ended_sequences_, 0);
    // Others' sequences are what ours cannot explain; within that, what they were before.
    foreign_sequences_ =
        std::clamp(foreign_sequences_, std::max(0, reported_sequences - own - ended),
                   std::max(0, reported_sequences - own_old));
    const int room_for_old = reported_sequences - foreign_sequences_;
    const int room_for_young = room_for_old - ended;
    int contained = 0;
    for (Entry& entry : entries_) {  // in order of dispatch
        if (!entry.sent_at) continue;
        const int room = is_old(entry) ? room_for_old : room_for_young;
        if (!entry.is_seen && contained + entry.sequences > room) continue;
        contained += entry.sequences;
        if (entry.is_seen) continue;
        entry.is_seen = true;
        unseen_tokens_ -= entry.prefill_tokens;
    }
    assert(unseen_tokens_ >= 0 && "charges are seen once");
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

Charge::Charge(std::shared_ptr<Account> account, Amount amount) : account_(std::move(account)) {
    assert(account_ != nullptr && amount.prefill_tokens >= 0 && amount.output_tokens >= 0);
    entry_ = account_->entries_.insert(account_->entries_.end(),
                                       {.prefill_tokens = amount.prefill_tokens,
                                        .output_tokens = amount.output_tokens,
                                        .sequences = amount.sequences});
    account_->prefill_tokens_ += amount.prefill_tokens;
    account_->unseen_tokens_ += amount.prefill_tokens;
    account_->output_tokens_ += amount.output_tokens;
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

void Charge::mark_first_byte() {
    if (account_ != nullptr) account_->release_prefill(*entry_);
}

void Charge::mark_output(std::int64_t tokens) {
    if (account_ == nullptr) return;
    const std::int64_t least = std::min<std::int64_t>(entry_->output_tokens, entry_->sequences);
    const std::int64_t come = std::clamp<std::int64_t>(tokens, 0, entry_->output_tokens - least);
    entry_->output_tokens -= come;
    account_->output_tokens_ -= come;
}

void Charge::release() {
    if (account_ == nullptr) return;
    const std::shared_ptr<Account> account = std::exchange(account_, nullptr);
    account->release_prefill(*entry_);
    account->output_tokens_ -= entry_->output_tokens;
    assert(account->output_tokens_ >= 0 && "a charge is released once");
    if (entry_->sent_at) account->ended_sequences_ += entry_->sequences;
    account->entries_.erase(entry_);
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
