// The inside of a call written as a JSON object: hermes (within <tool_call>) and llama3_json
// (bare).
#include "replica/chat/parse/call_parser.h"
#include "replica/chat/parse/tool_object_scanner.h"

namespace replica::chat::parse {

namespace {

using Kind = CallStep::Kind;

class ObjectCall final : public CallParser {
public:
    ObjectCall(OutputFormat format, CallSink& sink)
        : has_close_tag_(format == OutputFormat::kHermes), sink_(sink) {}

    CallStep step(std::string_view pending, Moment moment) override {
        return state_ == State::kObject ? step_object(pending, moment)
                                        : step_after_object(pending, moment);
    }

    void finish(FinishKind kind) override {
        if (state_ != State::kObject) return;
        sink_.on_fallback("unclosed_call");
        pass_on(scanner_.take_rest());
        if (kind == FinishKind::kEnd) complete();
    }

private:
    enum class State { kObject, kAfterObject };

    CallStep step_object(std::string_view pending, Moment moment) {
        if (has_close_tag_ && !scanner_.is_in_string()) {
            const Fit tag = Cursor{pending}.read("</tool_call>");
            if (tag == Fit::kPartial && moment == Moment::kMore) return {Kind::kWaiting, 0};
            if (tag == Fit::kFull) return break_off();
        }
        if (is_raw_) {
            pass_on(pending.substr(0, 1));
            return {Kind::kGoing, 1};
        }
        const auto status = scanner_.feed(pending.front());
        pass_on(scanner_.take_arguments());
        if (status == ToolObjectScanner::Status::kDone) {
            complete();
            state_ = State::kAfterObject;
        } else if (status == ToolObjectScanner::Status::kBroken) {
            if (scanner_.has_all_arguments()) return break_off();
            // It breaks after its name: what is left is kept as the text of the arguments.
            sink_.on_fallback("broken_object");
            is_raw_ = true;
            pass_on(pending.substr(0, 1));
        }
        return {Kind::kGoing, 1};
    }

    CallStep break_off() {
        sink_.on_fallback("broken_object");
        pass_on(scanner_.take_rest());
        complete();
        state_ = State::kAfterObject;
        return {Kind::kGoing, 0};
    }

    /// Extra braces are dropped when the close tag follows them; it may be missing.
    CallStep step_after_object(std::string_view pending, Moment moment) {
        if (!has_close_tag_) return {Kind::kEnded, 0};
        Cursor cursor{pending};
        while (!cursor.is_at_end() && (is_space(pending[cursor.at]) || pending[cursor.at] == '}')) {
            ++cursor.at;
        }
        const Fit tag = cursor.read("</tool_call>");
        if (tag == Fit::kFull) return {Kind::kEnded, cursor.at};
        if (tag == Fit::kPartial && moment == Moment::kMore) return {Kind::kWaiting, 0};
        return {Kind::kEnded, 0};
    }

    void pass_on(std::string_view arguments) {
        if (arguments.empty()) return;
        has_text_ = true;
        sink_.on_arguments(arguments);
    }
    void complete() {
        if (!has_text_) pass_on("{}");
    }

    bool has_close_tag_;
    CallSink& sink_;
    ToolObjectScanner scanner_;
    State state_ = State::kObject;
    bool is_raw_ = false;    // the object is broken: text is passed on as it is
    bool has_text_ = false;  // some arguments were passed on
};

}  // namespace

std::unique_ptr<CallParser> make_object_call(OutputFormat format, CallSink& sink) {
    return std::make_unique<ObjectCall>(format, sink);
}

}  // namespace replica::chat::parse
