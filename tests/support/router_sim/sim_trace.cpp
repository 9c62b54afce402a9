#include "tests/support/router_sim/sim_trace.h"

#include <cmath>
#include <random>
#include <utility>

namespace sim {
namespace {

/// Draws of one trace, and names for its texts.
class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}

    double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
    double between(double low, double high) { return low + (high - low) * uniform(); }
    std::int64_t tokens(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    int output(int low, int high) { return static_cast<int>(tokens(low, high)); }
    /// Many short ones, few long ones.
    std::int64_t skewed_tokens(std::int64_t low, std::int64_t high) {
        const double ratio = static_cast<double>(high) / static_cast<double>(low);
        return static_cast<std::int64_t>(static_cast<double>(low) * std::pow(ratio, uniform()));
    }
    double gap_s(double per_s) { return -std::log(1 - uniform()) / per_s; }
    bool chance(double share) { return uniform() < share; }
    std::size_t below(std::size_t limit) {
        return static_cast<std::size_t>(tokens(0, static_cast<std::int64_t>(limit) - 1));
    }

    Segment text(std::int64_t count) { return {next_text_++, count}; }

private:
    std::mt19937_64 random_;
    std::uint64_t next_text_ = 1;
};

Session single(double at_s, std::vector<Segment> prompt, int output) {
    return {at_s, {{.added = std::move(prompt), .output_tokens = output}}};
}

/// `count` single requests at random times, `per_s` on average.
template <class Prompt>
std::vector<Session> stream(Draw& draw, int count, double per_s, Prompt&& prompt) {
    std::vector<Session> sessions;
    double at_s = 0;
    for (int i = 0; i < count; ++i) {
        at_s += draw.gap_s(per_s);
        sessions.push_back(single(at_s, prompt(), draw.output(50, 250)));
    }
    return sessions;
}

std::vector<Session> unique_prompts(Draw& draw, int count, double per_s) {
    return stream(draw, count, per_s,
                  [&] { return std::vector{draw.text(draw.skewed_tokens(200, 8000))}; });
}

std::vector<Session> short_chat(Draw& draw, int count, double per_s) {
    return stream(draw, count, per_s, [&] { return std::vector{draw.text(draw.tokens(40, 500))}; });
}

/// Eight users, each with one document after another and up to two more questions about it.
std::vector<Session> documents(Draw& draw, int rounds, double think_s) {
    std::vector<Session> users(8);
    for (Session& user : users) {
        user.start_s = draw.between(0, 10);
        for (int i = 0; i < rounds; ++i) {
            user.turns.push_back({.added = {draw.text(21'600), draw.text(60)},
                                  .output_tokens = draw.output(80, 200),
                                  .think_s = draw.between(0.5, 1.5) * think_s,
                                  .is_document = true,
                                  .is_fresh = true});
            for (std::size_t more = draw.below(3); more > 0; --more) {
                user.turns.push_back({.added = {draw.text(60)},
                                      .output_tokens = draw.output(80, 200),
                                      .think_s = draw.between(0.5, 1.5) * think_s});
            }
        }
    }
    return users;
}

std::vector<Session> hot_prefix(Draw& draw, int count, double per_s) {
    const Segment hot = draw.text(4000);
    return stream(draw, count, per_s, [&] {
        if (draw.chance(0.9)) return std::vector{hot, draw.text(draw.tokens(100, 600))};
        return std::vector{draw.text(draw.tokens(1000, 4000))};
    });
}

/// 26 % of all prompt tokens are one of twelve system prompts.
std::vector<Session> shared_26(Draw& draw, int count, double per_s) {
    std::vector<Segment> systems;
    for (int i = 0; i < 12; ++i)
        systems.push_back(draw.text(1000));
    return stream(draw, count, per_s, [&] {
        return std::vector{systems[draw.below(systems.size())], draw.text(draw.tokens(1850, 3850))};
    });
}

std::vector<Session> chats(Draw& draw, int count, int turns) {
    const Segment system = draw.text(800);
    std::vector<Session> sessions;
    for (int i = 0; i < count; ++i) {
        Session chat{.start_s = draw.between(0, 15)};
        for (int turn = 0; turn < turns; ++turn) {
            Turn next{.output_tokens = draw.output(80, 250), .think_s = draw.between(1, 8)};
            if (turn == 0) next.added.push_back(system);
            next.added.push_back(draw.text(draw.tokens(100, 900)));
            chat.turns.push_back(std::move(next));
        }
        sessions.push_back(std::move(chat));
    }
    return sessions;
}

/// One conversation asked over and over, many times at once.
std::vector<Session> one_session(Draw& draw, int count, double per_s) {
    const Segment head = draw.text(6000);
    return stream(draw, count, per_s, [&] {
        return std::vector{head, draw.text(draw.tokens(50, 300))};
    });
}

std::vector<Session> bursts(Draw& draw, int count, int size) {
    std::vector<Segment> systems;
    for (int i = 0; i < 4; ++i)
        systems.push_back(draw.text(1500));
    std::vector<Session> sessions;
    for (int burst = 0; burst < count; ++burst) {
        for (int i = 0; i < size; ++i) {
            std::vector<Segment> prompt;
            if (draw.chance(0.5)) prompt.push_back(systems[draw.below(systems.size())]);
            prompt.push_back(draw.text(draw.tokens(200, 1500)));
            sessions.push_back(
                single(12.0 * burst + draw.between(0, 0.05), prompt, draw.output(50, 200)));
        }
    }
    return sessions;
}

std::vector<Session> operator+(std::vector<Session> left, std::vector<Session> right) {
    for (Session& session : right)
        left.push_back(std::move(session));
    return left;
}

}  // namespace

std::vector<Trace> make_traces(std::uint64_t seed) {
    std::vector<Trace> traces;
    const auto add = [&](std::string name, auto&& make, Fleet fleet = {}, bool has_room = false) {
        // Each trace draws for itself, so that changing one leaves the others as they were.
        Draw draw(seed * 1000 + traces.size());
        traces.push_back({std::move(name), make(draw), std::move(fleet), has_room});
    };
    const auto mixed = [](Draw& draw) {
        return chats(draw, 20, 10) + unique_prompts(draw, 300, 2);
    };
    const auto light = [](Draw& draw) {
        return chats(draw, 14, 10) + unique_prompts(draw, 200, 1);
    };

    add("unique prompts", [](Draw& draw) { return unique_prompts(draw, 800, 4.5); });
    add("short chat", [](Draw& draw) { return short_chat(draw, 1000, 9); });
    add(
        "21.6k documents, 8 users", [](Draw& draw) { return documents(draw, 8, 6); }, {}, true);
    add(
        "hot prefix, 90 %", [](Draw& draw) { return hot_prefix(draw, 1000, 8.5); }, {}, true);
    add(
        "26 % shared", [](Draw& draw) { return shared_26(draw, 800, 4.5); }, {}, true);
    add(
        "multi-turn chats", [](Draw& draw) { return chats(draw, 40, 10); }, {}, true);
    add(
        "one session", [](Draw& draw) { return one_session(draw, 800, 10); }, {}, true);
    add("documents and chat",
        [](Draw& draw) { return documents(draw, 5, 12) + short_chat(draw, 500, 4); });
    add("bursts", [](Draw& draw) { return bursts(draw, 12, 60); });
    add("a replica slows down", light, {.slow_from_s = 20, .slow_until_s = 70, .slow_speed = 0.25});
    add("unequal speeds", light, {.speeds = {1, 1, 0.5, 0.25}});
    add("rates told x 0.5", mixed, {.told_rates = {0.5, 0.5, 0.5, 0.5}});
    add("rates told x 2", mixed, {.told_rates = {2, 2, 2, 2}});
    add("rates told x 0.5 and x 2", mixed, {.told_rates = {0.5, 2, 0.5, 2}});
    add("small cache", mixed, {.cache_tokens = 30'000});
    add("evicting cache", [](Draw& draw) { return chats(draw, 30, 10); }, {.cache_tokens = 0});
    add("evicting cache, hot prefix", [](Draw& draw) { return hot_prefix(draw, 600, 3.5); },
        {.cache_tokens = 0});
    return traces;
}

}  // namespace sim
