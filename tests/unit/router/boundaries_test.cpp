// Boundaries of prompts: the same beginning gives the same hashes, anything a template renders
// changes all that follow, and nothing else does.
#include "router/boundaries.h"

#include <gmock/gmock.h>

namespace router {
namespace {

constexpr SipKey kKey{.first = 0x0706050403020100U, .second = 0x0f0e0d0c0b0a0908U};

std::string long_text(char letter) {
    return std::string(4000, letter);
}

std::vector<std::uint64_t> hashes_of(const std::string& body, BoundaryOptions options = {}) {
    options.key = kKey;
    options.prompt_tokens = 100'000;  // every message is long enough to be kept
    const auto request = proto::parse_chat_request(body);
    EXPECT_TRUE(request) << (request ? "" : request.error().message);
    std::vector<std::uint64_t> hashes;
    for (const Boundary& boundary : boundaries_of(*request, options).list)
        hashes.push_back(boundary.hash);
    return hashes;
}

std::string chat(const std::string& messages, const std::string& more = "") {
    return R"({"model":"m","messages":[)" + messages + "]" + more + "}";
}

const std::string kSystem = R"({"role":"system","content":"be brief"})";
const std::string kHello = R"({"role":"user","content":"hello"})";
const std::string kReply = R"({"role":"assistant","content":"hi","reasoning_content":"greet"})";
const std::string kMore = R"({"role":"user","content":"more"})";

TEST(SipHashTest, GivesTheVectorsOfItsPaper) {
    SipHasher hash(kKey);
    std::string bytes;
    for (char c = 0; c < 15; ++c)
        bytes.push_back(c);
    hash.add_bytes(bytes);
    EXPECT_EQ(hash.value(), 0xd320d86d2a519956U);
    EXPECT_EQ(SipHasher(kKey).value(), 0xabac0158050fc4dcU) << "of nothing";
}

TEST(SipHashTest, DoesNotDependOnHowTheBytesAreCut) {
    const std::string text = long_text('x');
    SipHasher whole(kKey);
    whole.add_bytes(text);
    for (const std::size_t cut : {1U, 3U, 7U, 8U, 9U, 1000U}) {
        SipHasher parts(kKey);
        for (std::size_t at = 0; at < text.size(); at += cut)
            parts.add_bytes(std::string_view(text).substr(at, cut));
        EXPECT_EQ(parts.value(), whole.value()) << cut;
    }
}

TEST(BoundariesTest, AChatThatGoesOnKeepsTheHashesOfItsBeginning) {
    const auto first = hashes_of(chat(kSystem + "," + kHello));
    const auto second = hashes_of(chat(kSystem + "," + kHello + "," + kReply + "," + kMore));
    ASSERT_EQ(first.size(), 2U) << "after the system message, after the user's";
    ASSERT_EQ(second.size(), 4U);
    EXPECT_EQ(second[0], first[0]);
    EXPECT_EQ(second[1], first[1]);
}

TEST(BoundariesTest, SpacingKeyOrderAndKeysThatNoTemplateRendersDoNotMatter) {
    const auto plain = hashes_of(chat(kHello));
    EXPECT_EQ(hashes_of(R"( { "messages" : [ {"content":"hello","role":"user"} ],
                            "temperature": 0.5, "max_tokens": 7, "model":"m", "seed": 3 } )"),
              plain);
    EXPECT_EQ(hashes_of(chat(R"({"role":"user","content":"h\u0065llo","annotations":[]})")), plain);
}

TEST(BoundariesTest, WhateverIsRenderedMatters) {
    const std::vector<std::string> bodies = {
        chat(kHello),
        chat(R"({"role":"user","content":"hallo"})"),
        chat(R"({"role":"user","content":"hello","name":"eve"})"),
        chat(kHello, R"(,"cache_salt":"s")"),
        chat(kHello, R"(,"reasoning_effort":"low")"),
        chat(kHello, R"(,"chat_template_kwargs":{"a":1})"),
        chat(kHello, R"(,"tools":[{"type":"function","function":{"name":"f"}}])"),
    };
    std::vector<std::uint64_t> last;
    for (const std::string& body : bodies)
        last.push_back(hashes_of(body).back());
    for (std::size_t i = 0; i < last.size(); ++i) {
        for (std::size_t j = i + 1; j < last.size(); ++j)
            EXPECT_NE(last[i], last[j]) << bodies[i] << bodies[j];
    }
    EXPECT_NE(hashes_of(chat(kHello), {.isolate = "alice"}), hashes_of(chat(kHello)));
    EXPECT_NE(hashes_of(chat(kHello), {.model = "other"}), hashes_of(chat(kHello)));
}

TEST(BoundariesTest, TheServedNameCountsAndNotTheNameInTheRequest) {
    const std::string alias = R"({"model":"default","messages":[)" + kHello + "]}";
    const std::string nameless = R"({"messages":[)" + kHello + "]}";
    const auto plain = hashes_of(chat(kHello), {.model = "foal"});
    EXPECT_EQ(hashes_of(alias, {.model = "foal"}), plain);
    EXPECT_EQ(hashes_of(nameless, {.model = "foal"}), plain);
}

TEST(BoundariesTest, ReasoningAndToolCallsOfAnAnswerArePartOfIt) {
    const std::string call = R"({"role":"assistant","content":null,"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]})";
    const std::string other = R"({"role":"assistant","content":null,"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":2}"}}]})";
    EXPECT_NE(hashes_of(chat(kHello + "," + call + "," + kMore)).back(),
              hashes_of(chat(kHello + "," + other + "," + kMore)).back());
    EXPECT_NE(hashes_of(chat(kHello + "," + kReply + "," + kMore)).back(),
              hashes_of(chat(kHello + R"(,{"role":"assistant","content":"hi"},)" + kMore)).back());
}

TEST(BoundariesTest, TokensAreShareOfTheEstimateAndShortBeginningsAreLeftOut) {
    const std::string big = R"({"role":"user","content":")" + long_text('a') + R"("})";
    const auto request = proto::parse_chat_request(chat(kHello + "," + kReply + "," + big));
    ASSERT_TRUE(request);
    const Boundaries boundaries = boundaries_of(*request, {.key = kKey, .prompt_tokens = 1000});
    ASSERT_EQ(boundaries.list.size(), 1U) << "hello and its answer are a few tokens";
    EXPECT_EQ(boundaries.list[0].tokens, 1000);
    EXPECT_EQ(boundaries.prompt_tokens, 1000);
}

TEST(BoundariesTest, OfALongChatTheFirstTwoAndTheLastSixtyTwoAreKept) {
    std::vector<Boundary> all;
    for (std::uint64_t i = 0; i < 200; ++i)
        all.push_back({i, static_cast<std::int64_t>(i) * 100});
    const std::vector<Boundary> kept = worth_keeping(all);
    ASSERT_EQ(kept.size(), 64U);
    EXPECT_EQ(kept[0].hash, 3U) << "the first of at least 256 tokens";
    EXPECT_EQ(kept[1].hash, 4U);
    EXPECT_EQ(kept[2].hash, 138U);
    EXPECT_EQ(kept[63].hash, 199U);
}

TEST(BoundariesTest, TextHasOneEveryFourKibibytesAndIdsEvery1024) {
    const auto parse = [](const std::string& prompt) {
        return *proto::parse_completion_request(R"({"model":"m","prompt":)" + prompt + "}");
    };
    const auto text = [&](std::size_t bytes, char last) {
        return parse("\"" + std::string(bytes - 1, 'a') + last + "\"");
    };
    const BoundaryOptions options{.key = kKey, .prompt_tokens = 10'000};
    const Boundaries first = boundaries_of(text(10'000, 'x'), options);
    const Boundaries second = boundaries_of(text(10'000, 'y'), options);
    ASSERT_EQ(first.list.size(), 2U);
    EXPECT_EQ(first.list[1].hash, second.list[1].hash) << "they differ behind it";
    EXPECT_NEAR(static_cast<double>(first.list[0].tokens), 4096, 1);

    std::string ids = "[";
    for (int i = 0; i < 2500; ++i)
        ids += std::to_string(i) + (i < 2499 ? "," : "]");
    const Boundaries of_ids = boundaries_of(parse(ids), {.key = kKey, .prompt_tokens = 2500});
    ASSERT_EQ(of_ids.list.size(), 2U);
    EXPECT_EQ(of_ids.list[1].tokens, 2048);
    EXPECT_TRUE(boundaries_of(parse(R"(["a","b"])"), options).list.empty());
}

TEST(BoundariesTest, ACacheKeyIsATieBreakOfItsOwn) {
    const auto key_of = [](const std::string& more) {
        return boundaries_of(*proto::parse_chat_request(chat(kHello, more)), {.key = kKey})
            .cache_key;
    };
    EXPECT_EQ(key_of(""), 0U);
    EXPECT_NE(key_of(R"(,"prompt_cache_key":"k")"), 0U);
    EXPECT_NE(key_of(R"(,"prompt_cache_key":"k")"), key_of(R"(,"prompt_cache_key":"l")"));
}

TEST(BoundariesTest, TheUserBreaksTiesWhereThereIsNoCacheKey) {
    const auto key_of = [](const std::string& more) {
        return boundaries_of(*proto::parse_chat_request(chat(kHello, more)), {.key = kKey})
            .cache_key;
    };
    EXPECT_NE(key_of(R"(,"user":"u")"), 0U);
    EXPECT_EQ(key_of(R"(,"user":"u")"), key_of(R"(,"user":"u","prompt_cache_key":"")"));
    EXPECT_NE(key_of(R"(,"user":"u")"), key_of(R"(,"user":"v")"));
    EXPECT_NE(key_of(R"(,"user":"k")"), key_of(R"(,"prompt_cache_key":"k")"));
    EXPECT_EQ(key_of(R"(,"user":"u","prompt_cache_key":"k")"),
              key_of(R"(,"prompt_cache_key":"k")"));
}

}  // namespace
}  // namespace router
