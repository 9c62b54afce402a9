// The states around calls. Text is fed byte by byte into `pending`, and after each byte the front
// of it is decided as far as it can be: the same bytes lead to the same decisions however they were
// cut, so the split rule holds by construction.
#include "replica/chat/output_parser.h"

#include <utility>

#include "replica/chat/parse/call_parser.h"

namespace replica::chat {

namespace {

using parse::CallMatch;
using parse::Cursor;
using parse::Fit;
using parse::Moment;

}  // namespace

struct OutputParser::Impl final : parse::CallSink {
    enum class State { kStart, kReasoning, kLead, kContent, kCall, kAfter };

    explicit Impl(ParserOptions parser_options)
        : options(std::move(parser_options)), tools(options.tools) {
        looks_for_calls =
            options.calls_enabled && options.format != OutputFormat::kNone && !tools.is_empty();
        if (options.initial == ParserState::kReasoning) state = State::kReasoning;
        if (options.initial == ParserState::kStart && options.think_tags) state = State::kStart;
    }

    void feed(std::string_view text) {
        for (const char c : text) {
            pending += c;
            decide(Moment::kMore);
            if (pending.size() > options.undecided_max) decide(Moment::kLimit);
        }
    }

    void finish(FinishKind kind) {
        decide(kind == FinishKind::kEnd ? Moment::kEnd : Moment::kLength);
        if (state == State::kCall) call->finish(kind);
    }

    /// Decides the front of `pending` until more text is needed. At a limit it stops once there is
    /// room again; at the end nothing is left.
    void decide(Moment moment) {
        while (!pending.empty() && step(moment)) {
            const bool has_room = pending.size() <= options.undecided_max;
            if (moment == Moment::kLimit && has_room) moment = Moment::kMore;
        }
    }

    /// One decision; false when more text is needed.
    bool step(Moment moment) {
        switch (state) {
            case State::kStart:
                return step_start(moment);
            case State::kReasoning:
                return step_reasoning(moment);
            case State::kLead:
                return step_lead();
            case State::kContent:
                return step_content(moment);
            case State::kCall:
                return step_call(moment);
            case State::kAfter:
                break;
        }
        return step_after(moment);
    }

    bool step_start(Moment moment) {
        Cursor cursor{pending};
        cursor.skip_whitespace();
        const Fit think = cursor.read("<think>");
        if (think == Fit::kPartial && moment == Moment::kMore) return false;
        state = State::kContent;
        if (think == Fit::kFull) {
            consume(cursor.at);
            state = State::kReasoning;
        }
        return true;
    }

    bool step_reasoning(Moment moment) {
        if (is_reasoning_begin) {
            if (const std::size_t space = parse::skip_space(pending, 0); space > 0) {
                return consume(space);
            }
            Cursor cursor{pending};
            const Fit think = may_repeat_think ? cursor.read("<think>") : Fit::kNo;
            if (think == Fit::kFull) {
                may_repeat_think = false;
                return consume(cursor.at);
            }
            if (think == Fit::kPartial && moment == Moment::kMore) return false;
            is_reasoning_begin = false;
        }
        const std::size_t plain = parse::skip_plain(pending, 0);
        if (plain > 0) return emit_text(plain);
        const std::size_t tag = parse::skip_space(pending, 0);
        if (tag == pending.size()) {
            if (moment == Moment::kMore) return false;
            return moment == Moment::kLimit ? emit_text(tag) : consume(tag);
        }
        if (pending[tag] != '<') return emit_text(tag);

        Cursor cursor{pending, tag};
        const Fit close = cursor.read("</think>");
        if (close == Fit::kFull) {
            state = State::kLead;
            return consume(cursor.at);
        }
        CallMatch match;
        if (looks_for_calls && options.calls_in_reasoning) match = match_call(tag, true);
        if (match.fit == Fit::kFull) {
            drops_think_close = true;
            return begin_call(match, tag + match.end);
        }
        const bool is_open = close == Fit::kPartial || match.fit == Fit::kPartial;
        if (is_open && moment == Moment::kMore) return false;
        return emit_tag_as_text(tag);
    }

    bool step_lead() {
        if (const std::size_t space = parse::skip_space(pending, 0); space > 0)
            return consume(space);
        state = State::kContent;
        return true;
    }

    bool step_content(Moment moment) {
        if (options.format == OutputFormat::kLlama3Json && looks_for_calls && is_message_begin) {
            const CallMatch match =
                parse::match_leading_object(pending, {options.format, &tools, false});
            if (match.fit == Fit::kFull) return begin_call(match, match.end);
            if (match.fit == Fit::kPartial && moment == Moment::kMore) return false;
        }
        is_message_begin = false;
        const bool looks_for_tags =
            drops_think_close || (looks_for_calls && options.format != OutputFormat::kLlama3Json);
        if (!looks_for_tags) return emit_text(pending.size());
        const std::size_t plain = parse::skip_plain(pending, 0);
        if (plain > 0) return emit_text(plain);
        const std::size_t tag = parse::skip_space(pending, 0);
        if (tag == pending.size()) return moment == Moment::kMore ? false : emit_text(tag);
        if (pending[tag] != '<') return emit_text(tag);

        Cursor cursor{pending, tag};
        const Fit close = drops_think_close ? cursor.read("</think>") : Fit::kNo;
        if (close == Fit::kFull) {
            emit_text(tag);
            drops_think_close = false;
            return consume(std::string_view("</think>").size());
        }
        const CallMatch match = match_call(tag, false);
        if (match.fit == Fit::kFull) return begin_call(match, tag + match.end);
        const bool is_open = close == Fit::kPartial || match.fit == Fit::kPartial;
        if (is_open && moment == Moment::kMore) return false;
        return emit_tag_as_text(tag);
    }

    bool step_call(Moment moment) {
        const parse::CallStep step = call->step(pending, moment);
        if (step.kind == parse::CallStep::Kind::kWaiting) return false;
        if (step.kind == parse::CallStep::Kind::kEnded) {
            call.reset();
            state = State::kAfter;
            may_drop_orphan = true;
        }
        return consume(step.consumed);
    }

    bool step_after(Moment moment) {
        const std::size_t tag = parse::skip_space(pending, 0);
        const bool is_over = moment == Moment::kEnd || moment == Moment::kLength;
        if (tag == pending.size() && is_over) return consume(tag);
        Fit open = Fit::kNo;
        const auto drop = [&](bool& may_drop, std::string_view literal) {
            Cursor cursor{pending, tag};
            const Fit fit = may_drop ? cursor.read(literal) : Fit::kNo;
            if (fit == Fit::kPartial) open = fit;
            if (fit != Fit::kFull) return false;
            may_drop = false;
            may_drop_orphan = false;
            return consume(cursor.at);
        };
        if (drop(may_drop_orphan, "</tool_call>") || drop(may_drop_orphan, "</function>") ||
            drop(drops_think_close, "</think>")) {
            return true;
        }
        const bool is_bare = options.format == OutputFormat::kLlama3Json;
        const CallMatch match =
            is_bare ? parse::match_next_object(pending, {options.format, &tools, false})
                    : match_call(tag, false);
        if (match.fit == Fit::kFull)
            return begin_call(match, is_bare ? match.end : tag + match.end);
        if (match.fit == Fit::kPartial || tag == pending.size()) open = Fit::kPartial;
        if (open == Fit::kPartial && moment == Moment::kMore) return false;
        state = State::kContent;
        is_message_begin = false;
        if (!has_content) consume(tag);
        return true;
    }

    CallMatch match_call(std::size_t tag, bool in_reasoning) const {
        return parse::match_tagged_call(std::string_view(pending).substr(tag),
                                        {options.format, &tools, in_reasoning});
    }

    /// `inside` is where the call's inside begins; what stands before it is dropped.
    bool begin_call(const CallMatch& match, std::size_t inside) {
        deltas.push_back(ToolCallStart{call_count, options.make_id(), match.name});
        call = options.format == OutputFormat::kQwenXml
                   ? parse::make_xml_call(tools, match.name, *this)
                   : parse::make_object_call(options.format, *this);
        ++call_count;
        state = State::kCall;
        return consume(inside);
    }

    /// A `<` that begins no tag, and the whitespace before it.
    bool emit_tag_as_text(std::size_t tag) {
        const std::string_view rest = std::string_view(pending).substr(tag);
        if (looks_for_calls && rest.starts_with("<tool_call>")) on_fallback("tag_as_text");
        return emit_text(tag + 1);
    }

    bool emit_text(std::size_t size) {
        const std::string_view text = std::string_view(pending).substr(0, size);
        if (state == State::kReasoning) {
            note_origin(TextOrigin::Kind::kReasoning, text);
            append<ReasoningDelta>(text);
        } else {
            on_content(text);
        }
        return consume(size);
    }

    bool consume(std::size_t size) {
        pending.erase(0, size);
        decided_bytes += size;
        return true;
    }

    /// `text` is a part of `pending`.
    void note_origin(TextOrigin::Kind kind, std::string_view text) {
        if (!options.reports_origins) return;
        const std::size_t begin =
            decided_bytes + static_cast<std::size_t>(text.data() - pending.data());
        if (!origins.empty() && origins.back().kind == kind && origins.back().bytes.end == begin) {
            origins.back().bytes.end += text.size();
        } else {
            origins.push_back({kind, {begin, begin + text.size()}});
        }
    }

    void on_content(std::string_view text) override {
        if (text.empty()) return;
        has_content = true;
        note_origin(TextOrigin::Kind::kContent, text);
        append<ContentDelta>(text);
    }
    void on_arguments(std::string_view json) override {
        if (!deltas.empty()) {
            auto* last = std::get_if<ToolCallArguments>(&deltas.back());
            if (last != nullptr && last->index == call_count - 1) {
                last->text += json;
                return;
            }
        }
        deltas.push_back(ToolCallArguments{call_count - 1, std::string(json)});
    }
    void on_fallback(std::string_view kind) override { ++fallbacks[std::string(kind)]; }

    template <class Delta>
    void append(std::string_view text) {
        if (text.empty()) return;
        if (!deltas.empty()) {
            if (auto* last = std::get_if<Delta>(&deltas.back())) {
                last->text += text;
                return;
            }
        }
        deltas.push_back(Delta{std::string(text)});
    }

    ParserOptions options;
    parse::ToolTypes tools;
    bool looks_for_calls = false;
    State state = State::kContent;
    std::string pending;  // undecided text
    std::size_t decided_bytes = 0;
    std::vector<TextOrigin> origins;
    std::vector<OutputDelta> deltas;
    std::unique_ptr<parse::CallParser> call;  // in kCall
    int call_count = 0;
    bool is_reasoning_begin = true;  // leading whitespace and a repeated <think> are dropped
    bool may_repeat_think = true;
    bool is_message_begin = true;    // llama3_json: an object here may be a call
    bool drops_think_close = false;  // a call closed the reasoning: one </think> may follow
    bool may_drop_orphan = false;    // directly after a call
    bool has_content = false;
    std::map<std::string, std::uint64_t> fallbacks;
};

OutputParser::OutputParser(ParserOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

std::vector<OutputDelta> OutputParser::feed(std::string_view text) {
    impl_->feed(text);
    return std::exchange(impl_->deltas, {});
}

std::vector<OutputDelta> OutputParser::finish(FinishKind kind) {
    impl_->finish(kind);
    return std::exchange(impl_->deltas, {});
}

std::vector<TextOrigin> OutputParser::take_origins() {
    return std::exchange(impl_->origins, {});
}
std::size_t OutputParser::decided_bytes() const {
    return impl_->decided_bytes;
}
bool OutputParser::in_reasoning() const {
    return impl_->state == Impl::State::kReasoning;
}
int OutputParser::tool_call_count() const {
    return impl_->call_count;
}
const std::map<std::string, std::uint64_t>& OutputParser::fallbacks() const {
    return impl_->fallbacks;
}

void accumulate(ParsedMessage& message, const std::vector<OutputDelta>& deltas) {
    struct Visitor {
        ParsedMessage& message;
        void operator()(const ReasoningDelta& delta) const { message.reasoning += delta.text; }
        void operator()(const ContentDelta& delta) const { message.content += delta.text; }
        void operator()(const ToolCallStart& delta) const {
            message.tool_calls.push_back({delta.id, delta.name, {}});
        }
        void operator()(const ToolCallArguments& delta) const {
            message.tool_calls[static_cast<std::size_t>(delta.index)].arguments += delta.text;
        }
    };
    for (const OutputDelta& delta : deltas)
        std::visit(Visitor{message}, delta);
}

}  // namespace replica::chat
