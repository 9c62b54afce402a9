// Recognising a tool call at the front of undecided text, and reading its inside.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "replica/chat/output_parser.h"
#include "replica/chat/parse/argument_types.h"
#include "replica/chat/parse/tag_scan.h"

namespace replica::chat::parse {

/// Why a step is taken: more text may follow, the undecided text has reached its limit, or the
/// generation has ended.
enum class Moment { kMore, kLimit, kEnd, kLength };

struct CallSearch {
    OutputFormat format = OutputFormat::kNone;
    const ToolTypes* tools = nullptr;
    bool in_reasoning = false;  // a declared name only, and no bare <function=
};

struct CallMatch {
    Fit fit = Fit::kNo;
    std::size_t end = 0;  // where the inside of the call begins
    std::string name;
};

/// qwen_xml and hermes: a call whose tag is the first byte of `text`.
CallMatch match_tagged_call(std::string_view text, const CallSearch& search);
/// llama3_json: whitespace, an optional <|python_tag|> and an object with a declared name.
CallMatch match_leading_object(std::string_view text, const CallSearch& search);
/// llama3_json: the next object, after `;` or a line break.
CallMatch match_next_object(std::string_view text, const CallSearch& search);

/// Where the pieces of a call go.
class CallSink {
public:
    virtual ~CallSink() = default;
    virtual void on_arguments(std::string_view json) = 0;
    virtual void on_content(std::string_view text) = 0;  // a part of the step's `pending`
    virtual void on_fallback(std::string_view kind) = 0;
};

/// What one step did with the front of the undecided text.
struct CallStep {
    enum class Kind { kGoing, kWaiting, kEnded } kind = Kind::kGoing;
    std::size_t consumed = 0;
};

/// The inside of one call, from behind its name to its end. `pending` is never empty in step();
/// finish() comes when nothing is pending and the generation has ended within the call.
class CallParser {
public:
    virtual ~CallParser() = default;
    virtual CallStep step(std::string_view pending, Moment moment) = 0;
    virtual void finish(FinishKind kind) = 0;
};

std::unique_ptr<CallParser> make_xml_call(const ToolTypes& tools, std::string name, CallSink& sink);
std::unique_ptr<CallParser> make_object_call(OutputFormat format, CallSink& sink);

}  // namespace replica::chat::parse
