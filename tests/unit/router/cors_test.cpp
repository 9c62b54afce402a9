// Which pages may call: origins as they are named, what a browser is told, what is never sent back.
#include "router/cors.h"

#include <gtest/gtest.h>

namespace router {
namespace {

proto::HttpRequestHead head_of(const std::string& method, const std::string& origin) {
    proto::HttpRequestHead head;
    head.method = method;
    if (!origin.empty()) head.headers.add("Origin", origin);
    return head;
}

TEST(CorsTest, AnOriginIsASchemeAndAHostAndNothingBehind) {
    for (const char* good : {"*", "https://a.example", "http://localhost:3000", "http://[::1]:80"})
        EXPECT_TRUE(is_origin(good)) << good;
    for (const char* bad : {"", "a.example", "https://", "https://a.example/", "ftp://a.example",
                            "https://A.example", "https://a b", "null"})
        EXPECT_FALSE(is_origin(bad)) << bad;
}

TEST(CorsTest, AllMeansAnyOriginAndNoDifferenceForCaches) {
    const std::vector<std::string> origins = {"*"};
    const Cors cors(origins);
    const proto::Headers fields = cors.fields(head_of("GET", "https://any.example"), "GET");
    EXPECT_EQ(fields.get("access-control-allow-origin"), "*");
    EXPECT_FALSE(fields.contains("vary"));
    EXPECT_FALSE(fields.contains("access-control-allow-credentials"));
    EXPECT_FALSE(cors.fields(head_of("GET", ""), "GET").contains("access-control-allow-origin"));
}

TEST(CorsTest, OriginsAreComparedWhole) {
    const std::vector<std::string> origins = {"https://a.example"};
    const Cors cors(origins);
    for (const char* other : {"https://a.example.evil", "https://a.exampl", "http://a.example",
                              "https://a.example:443", "null"}) {
        const proto::Headers fields = cors.fields(head_of("GET", other), "GET");
        EXPECT_FALSE(fields.contains("access-control-allow-origin")) << other;
        EXPECT_EQ(fields.get("vary"), "origin");
    }
}

TEST(CorsTest, AQuestionIsAnsweredWithTheMethodsAndTheFieldsItNames) {
    const std::vector<std::string> origins = {"https://a.example"};
    const Cors cors(origins);
    proto::HttpRequestHead head = head_of("OPTIONS", "https://a.example");
    EXPECT_FALSE(cors.fields(head, "POST").contains("access-control-allow-methods"));
    head.headers.add("Access-Control-Request-Method", "POST");
    head.headers.add("Access-Control-Request-Headers", "authorization, x-stainless-os");
    proto::Headers fields = cors.fields(head, "OPTIONS, POST");
    EXPECT_EQ(fields.get("access-control-allow-methods"), "OPTIONS, POST");
    EXPECT_EQ(fields.get("access-control-allow-headers"), "authorization, x-stainless-os");
    for (const std::string& bad :
         {std::string("a\"b"), std::string("a;b"), std::string(1025, 'a')}) {
        head.headers.set("Access-Control-Request-Headers", bad);
        fields = cors.fields(head, "POST");
        EXPECT_FALSE(fields.contains("access-control-allow-headers")) << bad;
    }
}

TEST(CorsTest, NothingIsSaidWithoutOrigins) {
    const std::vector<std::string> none;
    EXPECT_TRUE(Cors(none).fields(head_of("GET", "https://a.example"), "GET").empty());
}

}  // namespace
}  // namespace router
