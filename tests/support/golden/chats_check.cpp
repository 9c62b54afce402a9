#include <string>
#include <utility>
#include <vector>

#include "replica/chat/messages.h"
#include "replica/chat/template.h"
#include "replica/tokenizer/gguf_tokenizer.h"
#include "replica/tokenizer/tokenizer.h"
#include "tests/support/golden/chat_prompt.h"
#include "tests/support/golden/checks.h"
#include "tests/support/golden/greedy.h"
#include "tests/support/golden/logits.h"
#include "tests/support/golden/mtp_entries.h"

namespace golden {
namespace {

using Ids = std::vector<std::int32_t>;

struct Counts {
    GreedyCounts greedy;
    std::size_t prompt_tokens = 0, mtp_hits = 0, mtp_tries = 0;
    std::size_t mtp_all_visible = 0;  // texts whose hits the file counts without a causal mask
};

class ChatCheck {
public:
    ChatCheck(ModelSession& session, const ChatModel& chat, Report& report)
        : session_(session), chat_(chat), report_(report), mtp_entries_(session) {}

    void run(const Json& item, std::size_t index) {
        where_ = "case " + std::to_string(index);
        const auto prompt = chat_.render(item);
        if (!prompt) {
            report_.miss(where_ + ": " + prompt.error());
            return;
        }
        const Ids expected_ids = item.at("prompt_tokens").get<Ids>();
        if (prompt->text != item.at("prompt").get<std::string>()) {
            report_.miss(where_ + ": another prompt text");
        }
        if (prompt->tokens != expected_ids) report_.miss(where_ + ": other prompt tokens");
        counts_.prompt_tokens += expected_ids.size();

        session_.reset(0);
        const std::vector<float> logits = prefill(expected_ids);
        compare_prompt_logits(item, logits);
        const Ids greedy = item.at("greedy_tokens").get<Ids>();
        follow_greedy(session_, greedy, logits, where_, counts_.greedy, report_);
        if (chat_.tokenizer().decode(greedy, {.render_special = true}) !=
            item.at("greedy_text").get<std::string>()) {
            report_.miss(where_ + ": the greedy tokens decode to another text");
        }
        if (item.contains("mtp_hits")) compare_mtp(item, expected_ids, greedy);
    }

    const Counts& counts() const { return counts_; }

private:
    std::size_t rows_max() const { return static_cast<std::size_t>(session_.options().rows_max); }

    std::vector<float> prefill(const Ids& tokens) {
        std::span<const float> logits;
        for (std::size_t begin = 0; begin < tokens.size(); begin += rows_max()) {
            const std::size_t count = std::min(rows_max(), tokens.size() - begin);
            logits = session_.step({.tokens = std::span(tokens).subspan(begin, count)});
        }
        return {logits.begin(), logits.end()};
    }

    void compare_prompt_logits(const Json& item, std::span<const float> logits) {
        const Json& ids = item.at("top_ids");
        for (std::size_t i = 0; i < ids.size(); ++i) {
            report_.compare(static_cast<double>(logits[ids[i].get<std::size_t>()]),
                            item.at("top_logits")[i].get<double>(),
                            where_ + ", top logit " + std::to_string(i));
        }
        report_.compare(log_sum_exp(logits), item.at("logsumexp").get<double>(),
                        where_ + ", logsumexp");
    }

    /// How often the MTP block guesses the token after next along the greedy text.
    void compare_mtp(const Json& item, const Ids& prompt, const Ids& greedy) {
        if (session_.config().mtp_layers.empty()) {
            report_.miss(where_ + ": the model has no MTP block");
            return;
        }
        Ids text = prompt;
        text.insert(text.end(), greedy.begin(), greedy.end());
        MtpHits hits = count_hits(causal_entries(text), text, prompt.size());
        if (!hits.agrees_with(item)) {
            const auto all_visible = mtp_entries_.all_visible(text);
            if (all_visible) hits = count_hits(*all_visible, text, prompt.size());
            if (!all_visible || !hits.agrees_with(item)) {
                report_.miss(where_ + ": MTP hits " + std::to_string(hits.hits) + " of " +
                             std::to_string(hits.tries) + ", expected " +
                             item.at("mtp_hits").dump());
            } else {
                ++counts_.mtp_all_visible;
            }
        }
        counts_.mtp_hits += hits.hits;
        counts_.mtp_tries += hits.tries;
    }

    struct MtpHits {
        std::size_t hits = 0, tries = 0, near_ties = 0;
        bool agrees_with(const Json& item) const {
            const auto expected = item.at("mtp_hits").get<std::size_t>();
            const std::size_t difference = hits > expected ? hits - expected : expected - hits;
            return tries == item.at("mtp_tries").get<std::size_t>() && difference <= near_ties;
        }
    };

    /// Entry p guesses token p + 2; counted are the guesses of the answer's second token to its
    /// last.
    static MtpHits count_hits(const std::vector<TopTwo>& entries, const Ids& text,
                              std::size_t prompt_size) {
        MtpHits result;
        for (std::size_t p = prompt_size - 1; p + 2 < text.size(); ++p) {
            ++result.tries;
            if (entries[p].best == text[p + 2]) ++result.hits;
            if (entries[p].margin < kNearTie) ++result.near_ties;
        }
        return result;
    }

    std::vector<TopTwo> causal_entries(const Ids& text) {
        session_.reset(0);
        std::vector<TopTwo> tops;
        while (tops.size() + 1 < text.size()) {
            const std::size_t begin = tops.size();
            const std::size_t count = std::min(rows_max(), text.size() - 1 - begin);
            session_.step({.tokens = std::span(text).subspan(begin, count)});
            const std::span<const float> logits =
                session_.step_mtp(0, std::span(text).subspan(begin + 1, count));
            for (std::size_t i = 0; i < count; ++i) {
                tops.push_back(top_two(row_of(logits, i, session_.vocabulary())));
            }
        }
        return tops;
    }

    ModelSession& session_;
    const ChatModel& chat_;
    Report& report_;
    MtpEntries mtp_entries_;
    std::string where_;
    Counts counts_;
};

}  // namespace

void check_chats(const Json& document, ModelSession& session, Report& report) {
    report.tolerance = tolerance_for(session);
    const auto chat = ChatModel::from_gguf(session.file());
    if (!chat) {
        report.miss(chat.error());
        return;
    }
    ChatCheck check(session, *chat, report);
    const Json& cases = document.at("cases");
    for (std::size_t i = 0; i < cases.size(); ++i)
        check.run(cases[i], i);
    const Counts& counts = check.counts();
    report.summary = std::to_string(cases.size()) + " chats, " +
                     std::to_string(counts.prompt_tokens) + " prompt and " +
                     std::to_string(counts.greedy.tokens) + " greedy tokens (" +
                     std::to_string(counts.greedy.near_ties) + " near ties), MTP hits " +
                     std::to_string(counts.mtp_hits) + " of " + std::to_string(counts.mtp_tries) +
                     " (" + std::to_string(counts.mtp_all_visible) + " texts without causal mask)";
}

}  // namespace golden
