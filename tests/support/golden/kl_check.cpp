// kl-check REFERENCE.gguf TEST.gguf CHATS.json: what quantisation costs on the golden chats.
//
// For every position of prompt and golden answer: KL(reference || test) of the next-token
// distributions. Then the test model answers each chat that ended in tool calls on its own,
// greedily, and must name the same functions with the same arguments.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "replica/chat/output_parser.h"
#include "tests/support/golden/chat_prompt.h"
#include "tests/support/golden/checks.h"
#include "tests/support/golden/logits.h"

namespace golden {
namespace {

using Ids = std::vector<std::int32_t>;
namespace chat = replica::chat;

constexpr int kExitMiss = 1;
constexpr int kExitUsage = 2;
constexpr std::size_t kAnswerTokensMax = 512;

struct Flags {
    std::string reference, test, chats;
    double limit = 0.1;
    SessionOptions session;
    bool json = false;
};

/// KL(p || q) of the distributions behind two logit rows, in nats.
double kl_divergence(std::span<const float> p, std::span<const float> q) {
    const double lse_p = log_sum_exp(p);
    const double lse_q = log_sum_exp(q);
    double sum = 0.0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double log_p = static_cast<double>(p[i]) - lse_p;
        const double log_q = static_cast<double>(q[i]) - lse_q;
        sum += std::exp(log_p) * (log_p - log_q);
    }
    return sum;
}

struct Divergence {
    double sum = 0.0, worst = 0.0;
    std::size_t positions = 0, same_best = 0;
    double mean() const { return positions == 0 ? 0.0 : sum / static_cast<double>(positions); }
};

void add_chat(const Json& item, ModelSession& reference, ModelSession& test, Divergence& prompt,
              Divergence& answer) {
    Ids tokens = item.at("prompt_tokens").get<Ids>();
    const std::size_t prompt_size = tokens.size();
    const Ids greedy = item.at("greedy_tokens").get<Ids>();
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    const auto rows = static_cast<std::size_t>(reference.options().rows_max);
    reference.reset(0);
    test.reset(0);
    for (std::size_t begin = 0; begin < tokens.size(); begin += rows) {
        const Chunk chunk{
            .tokens = std::span(tokens).subspan(begin, std::min(rows, tokens.size() - begin)),
            .logits = Rows::kAll};
        const auto p = reference.step(chunk);
        const auto q = test.step(chunk);
        for (std::size_t i = 0; i < chunk.tokens.size(); ++i) {
            Divergence& total = begin + i + 1 < prompt_size ? prompt : answer;
            const auto p_row = row_of(p, i, reference.vocabulary());
            const auto q_row = row_of(q, i, test.vocabulary());
            const double kl = kl_divergence(p_row, q_row);
            total.sum += kl;
            if (!(kl <= total.worst)) total.worst = kl;
            ++total.positions;
            if (top_two(p_row).best == top_two(q_row).best) ++total.same_best;
        }
    }
}

/// "get_weather({...}) ..." in a form that compares by value.
std::string calls_of(const std::string& text, const Json& item) {
    chat::ParserOptions options;
    options.format = chat::OutputFormat::kQwenXml;
    options.tools = item.at("tools");
    options.initial = item.at("prompt").get<std::string>().ends_with("</think>\n\n")
                          ? chat::ParserState::kContent
                          : chat::ParserState::kReasoning;
    chat::OutputParser parser(options);
    chat::ParsedMessage message;
    chat::accumulate(message, parser.feed(text));
    chat::accumulate(message, parser.finish(chat::FinishKind::kEnd));
    std::string result;
    for (const chat::ParsedToolCall& call : message.tool_calls) {
        result += call.name + "(" + call.arguments + ") ";
    }
    return result;
}

std::string greedy_answer(const Json& item, ModelSession& model, const ChatModel& chat_model) {
    const Ids prompt = item.at("prompt_tokens").get<Ids>();
    const auto rows = static_cast<std::size_t>(model.options().rows_max);
    model.reset(0);
    std::span<const float> logits;
    for (std::size_t begin = 0; begin < prompt.size(); begin += rows) {
        logits = model.step(
            {.tokens = std::span(prompt).subspan(begin, std::min(rows, prompt.size() - begin))});
    }
    Ids answer;
    const auto& ends = chat_model.tokenizer().end_tokens();
    while (answer.size() < kAnswerTokensMax) {
        const std::int32_t best = top_two(logits).best;
        if (std::ranges::find(ends, best) != ends.end()) break;
        answer.push_back(best);
        logits = model.step({.tokens = std::span(answer).last(1)});
    }
    return chat_model.tokenizer().decode(answer, {.render_special = true});
}

int run(const Flags& flags) {
    std::ifstream stream(flags.chats);
    const Json document = Json::parse(stream);
    const auto reference = ModelSession::open(flags.reference, flags.session);
    const auto test = ModelSession::open(flags.test, flags.session);
    for (const auto* session : {&reference, &test}) {
        if (*session) continue;
        std::fprintf(stderr, "kl-check: %s\n", session->error().c_str());
        return kExitUsage;
    }
    const auto chat_model = ChatModel::from_gguf((*test)->file());
    if (!chat_model || (*reference)->vocabulary() != (*test)->vocabulary()) {
        std::fprintf(stderr, "kl-check: the models' tokenizers do not match\n");
        return kExitUsage;
    }

    Divergence prompt, answer;
    std::size_t tool_chats = 0, tool_right = 0;
    std::vector<std::string> wrong;
    for (const Json& item : document.at("cases")) {
        add_chat(item, **reference, **test, prompt, answer);
        if (item.at("tools").empty()) continue;
        const std::string expected = calls_of(item.at("greedy_text").get<std::string>(), item);
        if (expected.empty()) continue;
        ++tool_chats;
        const std::string ours = calls_of(greedy_answer(item, **test, *chat_model), item);
        if (ours == expected) {
            ++tool_right;
        } else {
            wrong.push_back("expected " + expected + "got " + ours);
        }
    }
    const double mean =
        (prompt.sum + answer.sum) / static_cast<double>(prompt.positions + answer.positions);
    const bool passed = mean <= flags.limit && tool_right == tool_chats;
    if (flags.json) {
        const Json result{{"passed", passed},
                          {"kl_mean", mean},
                          {"kl_mean_prompt", prompt.mean()},
                          {"kl_mean_answer", answer.mean()},
                          {"positions", prompt.positions + answer.positions},
                          {"same_best_answer_ratio",
                           static_cast<double>(answer.same_best) /
                               static_cast<double>(std::max<std::size_t>(answer.positions, 1))},
                          {"tool_chats", tool_chats},
                          {"tool_chats_right", tool_right}};
        std::printf("%s\n", result.dump().c_str());
    } else {
        std::printf("mean KL %.5f nats over %zu positions (limit %.3g)\n", mean,
                    prompt.positions + answer.positions, flags.limit);
        std::printf(
            "  prompts %.5f (worst %.3f), answers %.5f (worst %.3f), same best token in "
            "%zu of %zu answer positions\n",
            prompt.mean(), prompt.worst, answer.mean(), answer.worst, answer.same_best,
            answer.positions);
        std::printf("tool calls %zu of %zu right\n", tool_right, tool_chats);
        for (const std::string& text : wrong)
            std::printf("  %s\n", text.c_str());
    }
    return passed ? 0 : kExitMiss;
}

}  // namespace
}  // namespace golden

int main(int argc, char** argv) {
    golden::Flags flags;
    flags.session.context = 2048;
    CLI::App app("Compares a quantised model with its reference on the golden chats.");
    app.add_option("REFERENCE", flags.reference, "model file")
        ->required()
        ->check(CLI::ExistingFile);
    app.add_option("TEST", flags.test, "model file")->required()->check(CLI::ExistingFile);
    app.add_option("CHATS", flags.chats, "golden chats, JSON")
        ->required()
        ->check(CLI::ExistingFile);
    app.add_option("--limit", flags.limit, "largest mean KL that passes")->capture_default_str();
    app.add_option("--threads", flags.session.threads, "threads, 0 = all");
    app.add_flag("--json", flags.json, "one JSON document instead of lines");
    CLI11_PARSE(app, argc, argv);
    try {
        return golden::run(flags);
    } catch (const nlohmann::json::exception& error) {
        std::fprintf(stderr, "kl-check: %s is not in the expected form: %s\n", flags.chats.c_str(),
                     error.what());
        return golden::kExitUsage;
    }
}
