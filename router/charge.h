// What the router has put on a replica: accounts, charges and permits.
//
// An Account belongs to one instance (one process life) of a replica. When the replica restarts it
// gets a fresh account; charges of the old life keep theirs alive and release into it, so a late
// release can never make the new instance's numbers wrong.
//
//   Account ◀──── Charge   of one request: tokens of the prompt (until the first byte) and of the
//                          answer (until the end), blocks of KV memory (until a report has them)
//           ◀──── Permit   its sequences (slots), until the end
//
// Both are move-only and give back on destruction: every number returns to exactly zero when the
// last request has ended, however it ended.
//
// A report is a little older than its arrival, so it may still count what has ended here:
//
//   replica:  ... report A ... | end of the answer | ... done event, report B ...
//   router:                    | last byte read    | report A arrives | done event | report B
//
// On the status stream the done event of a dispatch comes before the first report that no longer
// counts it. Until then an ended charge is remembered, and explains what such a report says; it is
// neither another sender's sequence nor work that is still ahead. Decision thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>

namespace router {

using Clock = std::chrono::steady_clock;

/// The longest a replica holds a change back: what was sent less than this before a report arrived
/// may or may not be in it.
inline constexpr std::chrono::milliseconds kReportLag{20};

/// Without a done event (the stream is down, the request was refused) an ended charge is remembered
/// for this long: by then a newer report has come.
inline constexpr std::chrono::milliseconds kUnreportedEndMax{1'000};

/// And a report may count a prompt as waiting whose first token was here this long before. Far
/// above the lag of a healthy machine: a wrong guess costs only what other senders have queued.
inline constexpr std::chrono::milliseconds kPrefillLag{200};

class Charge;
class Permit;

class Account {
public:
    explicit Account(std::string instance) : instance_(std::move(instance)) {}
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

    const std::string& instance() const { return instance_; }

    int sequences() const { return sequences_; }  // ours, from selection to the end
    std::int64_t output_tokens() const { return output_tokens_; }
    std::int64_t prefill_tokens() const { return prefill_tokens_; }  // all ours before first byte
    std::int64_t unseen_tokens() const { return unseen_tokens_; }    // those no report contains
    std::int64_t blocks() const { return blocks_; }                  // of KV memory, all of ours
    std::int64_t unseen_blocks() const { return unseen_blocks_; }    // those no report contains

    /// What is still queued there when the last report said `reported`: less our prompts that it
    /// may have counted and that have got their first token since, but never less than ours that
    /// are known to wait.
    [[nodiscard]] std::int64_t queued_tokens(std::int64_t reported) const;

    /// A report arrived at `now` and counts `reported_sequences` running or waiting. It contains
    /// our oldest charges, as many as it counts less those of other senders; the rest stays ours to
    /// add. The count decides and not the time alone: a replica that is still reading or tokenising
    /// a request has not counted it, however long ago it was sent, and an idle one counts at once.
    void on_report(Clock::time_point now, int reported_sequences);

    /// The replica's done event for the charge with this number: later reports do not count it.
    void on_done(std::uint64_t number);

    /// A report says that no prompt waits for its prefill: those it contains have had theirs. For
    /// an answer that is no stream this is the only word before its end.
    void on_nothing_queued(Clock::time_point now);

    /// Sequences there: ours, exactly, plus those of other senders according to the last report.
    int occupied() const { return sequences_ + foreign_sequences_; }

    bool is_idle() const {
        return sequences_ == 0 && output_tokens_ == 0 && prefill_tokens_ == 0 &&
               unseen_tokens_ == 0 && blocks_ == 0 && unseen_blocks_ == 0;
    }

private:
    friend class Charge;
    friend class Permit;
    struct Entry {
        std::int64_t prefill_tokens = 0;
        std::int64_t output_tokens = 0;
        std::int64_t blocks = 0;
        std::optional<Clock::time_point> sent_at;  // unset while connecting
        int sequences = 1;
        std::uint64_t number = 0;
        bool is_seen = false;
        bool is_prefilled = false;
        bool is_done = false;            // the replica said so; the answer's rest is on its way
        std::int64_t prompt_tokens = 0;  // as charged, or as reported at the first token
        Clock::time_point prefilled_at;  // first byte, when is_prefilled
        Clock::time_point ended_at;      // of those in ended_
    };
    using Entries = std::pmr::list<Entry>;  // stable iterators; at most slots + 1 entries a replica

    void release_prefill(Entry& entry);
    void end(Entries::iterator entry, Clock::time_point now);

    std::string instance_;
    /// A report walks over all entries, and scattered over the heap each is a miss of every cache.
    std::pmr::unsynchronized_pool_resource nodes_;
    Entries entries_{&nodes_};
    Entries ended_{
        &nodes_};  // ours without a done event yet; the oldest go after kUnreportedEndMax
    std::uint64_t next_number_ = 1;
    int sequences_ = 0;
    int foreign_sequences_ = 0;
    std::int64_t gone_tokens_ = 0;  // the last report may count them, and they wait no more
    std::int64_t output_tokens_ = 0;
    std::int64_t prefill_tokens_ = 0;
    std::int64_t unseen_tokens_ = 0;
    std::int64_t blocks_ = 0;
    std::int64_t unseen_blocks_ = 0;
};

/// Tokens of one request on one instance. Empty after a move.
class Charge {
public:
    struct Amount {
        std::int64_t prefill_tokens = 0;  // uncached estimate
        std::int64_t output_tokens = 0;   // expected, all sequences together
        int sequences = 1;
        std::int64_t blocks = 0;  // of KV memory, for the whole prompt and some of the answer
    };

    Charge() = default;
    Charge(std::shared_ptr<Account> account, Amount amount);
    Charge(Charge&& other) noexcept;
    Charge& operator=(Charge&& other) noexcept;
    ~Charge() { release(); }

    /// The request's last byte went out; reports that arrive kReportLag later contain it.
    void mark_sent(Clock::time_point now);

    /// The first answer byte is here: nothing of the prompt is outstanding any more.
    /// `prompt_tokens`: the prompt's true length where the replica said it, the cached part
    /// included: a replica learns what it has cached only when the prompt's turn comes, and its
    /// reports may count all of it until then.
    void mark_first_byte(Clock::time_point now, std::optional<std::int64_t> prompt_tokens = {});

    /// `tokens` more of the answer are here; the expectation shrinks, but an answer that still runs
    /// is expected to go on by a token of each sequence.
    void mark_output(std::int64_t tokens);

    /// Nothing of the prompt is outstanding, by the first byte or by a report.
    bool is_prefilled() const { return account_ != nullptr && entry_->is_prefilled; }

    /// For Account::on_done.
    [[nodiscard]] std::uint64_t number() const { return account_ ? entry_->number : 0; }

    void release() { release(Clock::now()); }
    void release(Clock::time_point now);
    bool is_held() const { return account_ != nullptr; }

private:
    std::shared_ptr<Account> account_;
    Account::Entries::iterator entry_{};
};

/// The slots of one request on one instance. Empty after a move.
class Permit {
public:
    Permit() = default;
    Permit(std::shared_ptr<Account> account, int sequences);
    Permit(Permit&& other) noexcept;
    Permit& operator=(Permit&& other) noexcept;
    ~Permit() { release(); }

    void release();
    bool is_held() const { return account_ != nullptr; }

private:
    std::shared_ptr<Account> account_;
    int sequences_ = 0;
};

}  // namespace router
