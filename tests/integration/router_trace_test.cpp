// What tracing headers become on their way through the router to a replica.
#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
constexpr const char* kChat = "/v1/chat/completions";

TEST(RouterTraceTest, TheTraceGoesOnWithASpanOfOurOwn) {
    Fleet fleet(1);
    const std::string trace = "0af7651916cd43dd8448eb211c80319c";
    const std::string span = "b7ad6b7169203331";
    const std::string good = "traceparent: 00-" + trace + "-" + span + "-01";
    Child& replica = fleet.fakes[0]->process();
    Child& router = fleet.router->process();
    const auto sent = [&](const std::vector<std::string>& fields) {
        const std::size_t from = replica.line_count();
        EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false), fields).status, 200);
        return replica.wait_line({"trace dispatch="}, from).value_or("");
    };
    const std::string kept = sent({good, "tracestate: vendor=1", "x-request-id: kept"});
    EXPECT_THAT(kept, HasSubstr("traceparent=00-" + trace + "-"));
    EXPECT_THAT(kept, HasSubstr("-01 tracestate=vendor=1"));
    EXPECT_THAT(kept, Not(HasSubstr(span)));
    EXPECT_TRUE(router.wait_line({"event=decision_record", "request_id=kept", trace}));
    for (const std::vector<std::string>& fields :
         {std::vector<std::string>{},
          {"traceparent: 00-" + trace + "-" + span, "tracestate: vendor=1"},
          {good, good, "tracestate: vendor=1"}}) {
        const std::string made = sent(fields);
        EXPECT_THAT(made, ContainsRegex("traceparent=00-[0-9a-f]{32}-[0-9a-f]{16}-00"));
        EXPECT_THAT(made, Not(HasSubstr(trace)));
        EXPECT_THAT(made, Not(HasSubstr("vendor")));
    }
}

TEST(RouterTraceTest, TheRecordOfARequestSaysWhichModelAnsweredAndHowMuch) {
    Fleet fleet(1);
    Child& router = fleet.router->process();
    while (get(fleet.router->port(), "/v1/models").body.find("\"fake\"") == std::string::npos) {
    }
    const std::string named = R"("max_tokens":7,"messages":[{"role":"user","content":"hi"}]})";
    for (const std::string& start : {std::string("{"), std::string(R"({"model":"default",)")}) {
        const std::size_t from = router.line_count();
        ASSERT_EQ(post(fleet.router->port(), kChat, start + named).status, 200);
        const auto record = router.wait_line({"event=decision_record"}, from);
        ASSERT_TRUE(record);
        EXPECT_THAT(*record, HasSubstr("\"model\":\"fake\""));
        EXPECT_THAT(*record, HasSubstr("\"generated\":7"));
        const auto line = router.wait_line({"event=request ", "path=/v1/chat"}, from);
        ASSERT_TRUE(line);
        EXPECT_THAT(*line, HasSubstr(" model=fake "));
        EXPECT_THAT(*line, HasSubstr(" generated=7 "));
    }
}

}  // namespace
}  // namespace fleet
