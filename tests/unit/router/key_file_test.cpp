// The key file and the ring of keys: what is accepted, what is refused and in which words, whose
// key it is, and what a reload keeps.
#include "router/key_file.h"

#include <gmock/gmock.h>

#include "router/key_ring.h"

namespace router {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string hex_of(std::string_view key) {
    std::string hex;
    for (const std::uint8_t byte : sha256_of(key)) {
        hex += "0123456789abcdef"[byte >> 4U];
        hex += "0123456789abcdef"[byte & 15U];
    }
    return hex;
}

std::string key_table(const std::string& name, const std::string& key,
                      const std::string& more = "") {
    return "[[key]]\nname = \"" + name + "\"\nsha256 = \"" + hex_of(key) + "\"\n" + more + "\n";
}

std::string error_of(const std::string& text) {
    const auto entries = parse_key_file(text);
    return entries ? "" : entries.error();
}

TEST(KeyFileTest, TheDigestIsTheOneThatSha256sumPrints) {
    EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(KeyFileTest, AnEntryHasItsValuesOrTheirDefaults) {
    const auto entries = parse_key_file(
        key_table("alice", "k1", "priority_min = -20\nweight = 2\nrequests_max = 8") +
        key_table("bob.2", "k2"));
    ASSERT_TRUE(entries) << entries.error();
    ASSERT_EQ(entries->size(), 2U);
    EXPECT_EQ((*entries)[0].name, "alice");
    EXPECT_EQ((*entries)[0].priority_min, -20);
    EXPECT_EQ((*entries)[0].weight, 2);
    EXPECT_EQ((*entries)[0].requests_max, 8);
    EXPECT_EQ((*entries)[1].priority_min, -100);
    EXPECT_EQ((*entries)[1].weight, 1);
    EXPECT_EQ((*entries)[1].requests_max, std::nullopt);
    EXPECT_EQ((*entries)[1].digest, sha256_of("k2"));
}

TEST(KeyFileTest, WhatIsWrongIsSaidWithItsLineAndWhatIsWanted) {
    EXPECT_THAT(error_of(""), HasSubstr("no key"));
    EXPECT_THAT(error_of("# nothing\n"), HasSubstr("[[key]]"));
    EXPECT_THAT(error_of("key = 3\n"), HasSubstr("line 1: 'key' has no place"));
    EXPECT_THAT(error_of("[[keys]]\nname = \"a\"\n"), HasSubstr("'keys' has no place"));
    EXPECT_THAT(error_of("[[key]\n"), HasSubstr("line 1: "));
    EXPECT_THAT(error_of("[[key]]\nname = \"a\"\n"), HasSubstr("no 'sha256'"));
    EXPECT_THAT(error_of("[[key]]\nsha256 = \"" + hex_of("x") + "\"\n"), HasSubstr("no 'name'"));
    EXPECT_THAT(error_of(key_table("a b", "x")), HasSubstr("line 2: 'name' is wrong"));
    EXPECT_THAT(error_of(key_table(std::string(65, 'a'), "x")), HasSubstr("'name' is wrong"));
    EXPECT_THAT(error_of(key_table("a", "x", "quota = 3")), HasSubstr("'quota' is wrong"));
    EXPECT_THAT(error_of(key_table("a", "x") + key_table("a", "y")), HasSubstr("there twice"));
    EXPECT_THAT(error_of(key_table("a", "x") + key_table("b", "x")),
                HasSubstr("'b' has the key of 'a'"));
}

TEST(KeyFileTest, ValuesOutsideTheirRangeOrOfAnotherTypeAreRefused) {
    for (const char* bad :
         {"priority_min = -101", "priority_min = 101", "priority_min = 1.5", "priority_min = \"3\"",
          "weight = 0", "weight = -1", "weight = nan", "weight = inf", "weight = 1001",
          "weight = \"2\"", "weight = true", "requests_max = 0", "requests_max = -1",
          "requests_max = 2.0", "requests_max = 9223372036854775807"}) {
        EXPECT_THAT(error_of(key_table("a", "x", bad)), HasSubstr("line 4: ")) << bad;
    }
    EXPECT_EQ(error_of(key_table("a", "x", "weight = 0.5")), "");
}

TEST(KeyFileTest, AKeyPastedInPlaceOfItsDigestIsNotRepeated) {
    const std::string error = error_of("[[key]]\nname = \"a\"\nsha256 = \"sk-secret\"\n");
    EXPECT_THAT(error, HasSubstr("64 hex digits"));
    EXPECT_THAT(error, Not(HasSubstr("sk-secret")));
    EXPECT_NE(error_of("[[key]]\nname = \"a\"\nsha256 = \"" + std::string(64, 'g') + "\"\n"), "");
}

TEST(KeyFileTest, ItsSizeIsBounded) {
    EXPECT_THAT(error_of(std::string(kKeyFileBytesMax + 1, '#')), HasSubstr("1 MiB"));
    EXPECT_THAT(read_key_text("/no/such/file").error(), HasSubstr("/no/such/file"));
}

TEST(KeyFileTest, WhatNestsTooDeeplyForAParserIsRefusedBeforeIt) {
    std::string dots = "a";
    for (int i = 0; i < 50'000; ++i)
        dots += ".a";
    EXPECT_THAT(error_of("[" + dots + "]"), HasSubstr("line 1: more than 32 dots"));
    EXPECT_THAT(error_of("\n" + dots + " = 1"), HasSubstr("line 2: more than 32 dots"));
    EXPECT_THAT(error_of("x = {" + dots + " = 1}"), HasSubstr("more than 32 dots"));
    EXPECT_THAT(error_of("x = " + std::string(50'000, '[')), HasSubstr("more than 32 brackets"));
    EXPECT_THAT(read_key_text("/dev/zero").error(), HasSubstr("not a regular file"));
}

struct Ring {
    explicit Ring(const std::string& file) { keys.replace(parse_key_file(file).value()); }
    FairShare shares;
    KeyRing keys{shares};
};

TEST(KeyRingTest, FindsWhoseKeyItIsInEitherHeader) {
    Ring ring(key_table("alice", "k1", "priority_min = 5") + key_table("bob", "k2") +
              key_table("carol", "k3"));
    EXPECT_EQ(ring.keys.find("k1")->name, "alice");
    EXPECT_EQ(ring.keys.find("k3")->name, "carol");
    EXPECT_EQ(ring.keys.find("k1")->priority_min, 5);
    EXPECT_NE(ring.keys.find("k1")->key, ring.keys.find("k2")->key);
    EXPECT_EQ(ring.keys.find(proto::Headers{{"Authorization", "bearer k2"}})->name, "bob");
    EXPECT_EQ(ring.keys.find(proto::Headers{{"X-API-Key", "k2"}})->name, "bob");
    for (const char* bad : {"", "k", "k4", "k11", "K1"})
        EXPECT_EQ(ring.keys.find(bad), nullptr) << bad;
    EXPECT_EQ(ring.keys.find(proto::Headers{}), nullptr);
    EXPECT_EQ(ring.keys.find(proto::Headers{{"Authorization", "Basic azI="}}), nullptr);
}

TEST(KeyRingTest, WithoutKeysEverybodyIsAnonymous) {
    FairShare shares;
    const KeyRing keys(shares);
    EXPECT_FALSE(keys.is_needed());
    EXPECT_EQ(keys.find(proto::Headers{})->key, kAnonymousKey);
}

TEST(KeyRingTest, AReloadKeepsTheServiceOfNamesThatStay) {
    Ring ring(key_table("alice", "k1") + key_table("bob", "k2"));
    const auto before = ring.keys.find("k1");
    ring.shares.add(before->key, 100, Clock::time_point{});
    ring.keys.replace(
        parse_key_file(key_table("carol", "k9") + key_table("alice", "new", "weight = 4")).value());
    EXPECT_EQ(ring.keys.find("k1"), nullptr);
    EXPECT_EQ(ring.keys.find("k2"), nullptr);
    const auto after = ring.keys.find("new");
    ASSERT_NE(after, nullptr);
    EXPECT_EQ(after->key, before->key);
    EXPECT_EQ(ring.shares.attained(after->key, Clock::time_point{}), 25) << "by its new weight";
    EXPECT_EQ(before->name, "alice") << "a request that runs keeps its caller";
}

TEST(KeyRingTest, OnlyLoopbackAddressesAreThisMachine) {
    for (const char* ours : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"})
        EXPECT_TRUE(is_loopback_address(ours)) << ours;
    for (const char* other : {"0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "", "localhost"})
        EXPECT_FALSE(is_loopback_address(other)) << other;
}

TEST(KeyRingTest, TheAnswerToNobodyIsOneAndTheSame) {
    const proto::HttpResponse response = unauthorized_response();
    EXPECT_EQ(response.status, 401);
    EXPECT_EQ(response.headers.get("www-authenticate"), "Bearer");
    EXPECT_THAT(response.body, HasSubstr("\"authentication_error\""));
    EXPECT_THAT(response.body, HasSubstr("\"invalid_api_key\""));
}

}  // namespace
}  // namespace router
