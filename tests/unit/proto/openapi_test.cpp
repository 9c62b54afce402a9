// The OpenAPI document against the tables it is made from.
#include "proto/openapi.h"

#include <gtest/gtest.h>

#include "proto/fields.h"
#include "proto/json_reader.h"
#include "proto/route_table.h"

namespace proto_test {
namespace {

using proto::Json;

TEST(OpenApiTest, HoldsEveryFieldThatIsNotRefusedSomewhere) {
    const proto::Result<Json> document = proto::read_json(proto::openapi_json("1.2.3", {}));
    ASSERT_TRUE(document);
    EXPECT_EQ((*document)["openapi"], "3.1.0");
    EXPECT_EQ((*document)["info"]["version"], "1.2.3");
    const Json& schemas = (*document)["components"]["schemas"];
    for (const proto::FieldSpec& spec : proto::request_fields()) {
        const bool is_listed =
            spec.mark != proto::FieldMark::kRefused && spec.mark != proto::FieldMark::kUnoffered;
        const std::string name(spec.name);
        if ((spec.endpoints & proto::kChat) != 0) {
            EXPECT_EQ(schemas["ChatRequest"]["properties"].contains(name), is_listed) << name;
        }
        if ((spec.endpoints & proto::kCompletions) != 0) {
            EXPECT_EQ(schemas["TextRequest"]["properties"].contains(name), is_listed) << name;
        }
    }
    EXPECT_EQ(
        schemas["ChatRequest"]["properties"]["n"].dump(),
        R"({"type":"integer","minimum":1,"maximum":16,"description":"choices; the prompt is computed once"})");
}

TEST(OpenApiTest, EveryReferenceLeadsSomewhere) {
    proto::RouteTable routes;
    routes.add("POST", "/v1/chat/completions", {});
    routes.add("POST", "/v1/completions", {});
    const Json document = proto::read_json(proto::openapi_json("1", routes)).value();
    int reference_count = 0;
    const std::function<void(const Json&)> visit = [&](const Json& value) {
        if (value.is_object() && value.contains("$ref")) {
            ++reference_count;
            const std::string pointer = value["$ref"].get<std::string>().substr(1);
            EXPECT_TRUE(document.contains(Json::json_pointer(pointer))) << pointer;
        }
        if (value.is_structured()) {
            for (const Json& child : value)
                visit(child);
        }
    };
    visit(document);
    EXPECT_GE(reference_count, 4);
}

TEST(OpenApiTest, HasThePathsThatAreServedAndNoOthers) {
    proto::RouteTable routes;
    routes.add("GET", "/v1/models/{id}", {});
    routes.add("POST", "/apply-template", {});
    routes.add("GET", "/internal/status", {});
    routes.add("GET", "/dashboard", {});
    const Json paths = proto::read_json(proto::openapi_json("1", routes)).value()["paths"];
    EXPECT_EQ(paths.size(), 2);
    EXPECT_EQ(paths["/v1/models/{id}"]["get"]["parameters"][0]["name"], "id");
    EXPECT_TRUE(paths["/apply-template"]["post"].contains("requestBody"));
}

}  // namespace
}  // namespace proto_test
