// Statements, scopes and macro calls; expressions are in evaluate.cpp.
#include "replica/chat/jinja/interpreter.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "replica/chat/jinja/scopes.h"

namespace replica::chat::jinja {

Interpreter::Interpreter(const Program& program, const Json& context, const RenderOptions& options)
    : program_(program), options_(options), budget_(options.limits) {
    const std::size_t count = program.names.size();
    context_.resize(count);
    top_level_.resize(count);
    is_set_.resize(count);
    is_given_.resize(count);
    for (std::size_t id = 0; id < count; ++id) {
        const std::string& name = program.names[id];
        if (name == "loop") loop_name_ = static_cast<NameId>(id);
        const auto given = context.find(name);
        if (given != context.end()) {
            const auto& trusted = options.trusted_names;
            const bool is_own = std::find(trusted.begin(), trusted.end(), name) != trusted.end();
            context_[id] =
                from_json(budget_, *given, is_own ? Origin::kTemplate : Origin::kRequest);
        } else if (is_function(name)) {
            context_[id] = std::make_shared<const Callable>(Callable{name, std::nullopt});
        } else {
            continue;
        }
        is_given_[id] = true;
    }
}

Rendered Interpreter::run() {
    TextBuilder out(budget_);
    try {
        execute(program_.body, out);
    } catch (const Fault& fault) {
        if (fault.error().line != 0) throw;
        throw Fault(fault.error().kind, fault.error().message, line_);
    }
    return out.finish_rendered();
}

Namespace* Interpreter::new_namespace() {
    budget_.charge_elements(4);
    namespaces_.push_back(std::make_unique<Namespace>());
    return namespaces_.back().get();
}

Interpreter::Flow Interpreter::execute(const Block& block, TextBuilder& out) {
    const DepthScope depth(depth_);
    for (const Statement& statement : block) {
        budget_.charge_nodes(1);
        const int outer_line = line_;  // an error leaves line_ where it happened
        line_ = statement.line;
        const Flow flow = execute(statement, out);
        line_ = outer_line;
        if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, TextBuilder& out) {
    if (const auto* print = std::get_if<Print>(&statement.node)) {
        append_text(budget_, out, evaluate(*print->expression));
    } else if (const auto* text = std::get_if<PrintText>(&statement.node)) {
        out.append(*text->text);
    } else if (const auto* choice = std::get_if<If>(&statement.node)) {
        return execute_if(*choice, out);
    } else if (const auto* loop = std::get_if<For>(&statement.node)) {
        return execute_for(*loop, out);
    } else if (const auto* set = std::get_if<Set>(&statement.node)) {
        assign(set->target, evaluate(*set->value));
    } else if (const auto* set_block = std::get_if<SetBlock>(&statement.node)) {
        return execute_set_block(*set_block);
    } else if (const auto* macro = std::get_if<DefineMacro>(&statement.node)) {
        bind(macro->macro->id, macro->macro.get());
    } else if (const auto* generation = std::get_if<Generation>(&statement.node)) {
        const FrameScope frame(*this);
        return execute(generation->body, out);
    } else {
        return std::holds_alternative<Break>(statement.node) ? Flow::kBreak : Flow::kContinue;
    }
    return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_if(const If& statement, TextBuilder& out) {
    for (const If::Branch& branch : statement.branches) {
        if (is_true(evaluate(*branch.condition))) return execute(branch.body, out);
    }
    return execute(statement.otherwise, out);
}

Interpreter::Flow Interpreter::execute_for(const For& statement, TextBuilder& out) {
    const SequencePtr items = select_items(statement);
    Loop* loop = nullptr;
    if (loop_name_ >= 0 && !items->items.empty()) {
        budget_.charge_elements(2);
        loops_.push_back(std::make_unique<Loop>(Loop{items, 0, loop_depth_ + 1}));
        loop = loops_.back().get();
    }
    ++loop_depth_;
    bool has_whole_iteration = false;
    for (std::size_t i = 0; i < items->items.size(); ++i) {
        budget_.charge_iteration();
        const FrameScope frame(*this);
        if (loop != nullptr) {
            loop->index = i;
            bind(loop_name_, loop);
        }
        assign(statement.target, items->items[i]);
        const Flow flow = execute(statement.body, out);
        if (flow == Flow::kBreak) break;
        has_whole_iteration = has_whole_iteration || flow == Flow::kNormal;
    }
    --loop_depth_;
    // As in Jinja, iterations that `break` or `continue` ended do not count against `else`.
    if (has_whole_iteration) return Flow::kNormal;
    const FrameScope frame(*this);
    return execute(statement.otherwise, out);
}

/// The items of a loop that pass its condition; the condition sees the target, not the loop.
SequencePtr Interpreter::select_items(const For& statement) {
    SequencePtr items = iterate(budget_, evaluate(*statement.sequence));
    if (!statement.condition) return items;
    std::vector<Value> passing;
    for (const Value& item : items->items) {
        budget_.charge_iteration();
        const FrameScope frame(*this);
        assign(statement.target, item);
        if (is_true(evaluate(*statement.condition))) passing.push_back(item);
    }
    return make_sequence(budget_, SequenceKind::kList, std::move(passing));
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlock& statement) {
    TextBuilder body(budget_);
    {
        const FrameScope frame(*this);
        const Flow flow = execute(statement.body, body);
        if (flow != Flow::kNormal) return flow;
    }
    Value value = body.finish();
    for (const ExpressionPtr& expression : statement.filters) {
        const auto& filter = std::get<FilterCall>(expression->node);
        value = call_filter(filter.name, value, evaluate_arguments(filter.arguments));
    }
    assign(statement.target, std::move(value));
    return Flow::kNormal;
}

void Interpreter::assign(const Target& target, Value value) {
    if (const auto* name = std::get_if<NameId>(&target.node)) {
        return bind(*name, std::move(value));
    }
    if (const auto* attribute = std::get_if<Target::NamespaceAttribute>(&target.node)) {
        const Value space = look_up(attribute->space);
        if (!space.is<Namespace*>()) fail_type("cannot assign attribute on non-namespace object");
        budget_.charge_elements(1);
        return space.get<Namespace*>()->set(attribute->attribute, std::move(value));
    }
    const auto& targets = std::get<std::vector<Target>>(target.node);
    const SequencePtr parts = iterate(budget_, value);
    if (parts->items.size() < targets.size()) {
        fail_type("not enough values to unpack (expected " + std::to_string(targets.size()) +
                  ", got " + std::to_string(parts->items.size()) + ")");
    }
    if (parts->items.size() > targets.size()) {
        fail_type("too many values to unpack (expected " + std::to_string(targets.size()) + ")");
    }
    for (std::size_t i = 0; i < targets.size(); ++i)
        assign(targets[i], parts->items[i]);
}

void Interpreter::bind(NameId name, Value value) {
    const auto id = static_cast<std::size_t>(name);
    if (is_top_level_) {
        top_level_[id] = std::move(value);
        is_set_[id] = true;
        return;
    }
    for (std::size_t i = bindings_.size(); i > frame_begin_; --i) {
        if (bindings_[i - 1].name == name) {
            bindings_[i - 1].value = std::move(value);
            return;
        }
    }
    budget_.charge_elements(1);
    bindings_.push_back({name, std::move(value)});
}

Value Interpreter::look_up(NameId name) const {
    for (std::size_t i = bindings_.size(); i > call_base_; --i) {
        if (bindings_[i - 1].name == name) return bindings_[i - 1].value;
    }
    const auto id = static_cast<std::size_t>(name);
    if (is_set_[id]) return top_level_[id];
    if (is_given_[id]) return context_[id];
    return undefined("'" + program_.names[id] + "' is undefined");
}

Value Interpreter::call_macro(const Macro& macro, const CallArguments& arguments) {
    if (macro_depth_ >= budget_.limits().macro_depth_max) {
        throw Fault(TemplateErrorKind::kLimit,
                    "macros call each other more than " +
                        std::to_string(budget_.limits().macro_depth_max) + " deep");
    }
    const std::size_t given = arguments.positional.size();
    if (given > macro.parameters.size()) {
        fail_type("macro " + repr_of(macro.name) + " takes not more than " +
                  std::to_string(macro.parameters.size()) + " argument(s)");
    }
    for (const auto& keyword : arguments.keyword) {
        const std::string& name = keyword.first;
        const auto place = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                        [&](const auto& item) { return item.spelling == name; });
        if (place - macro.parameters.begin() < static_cast<std::ptrdiff_t>(given) ||
            place == macro.parameters.end()) {
            fail_type("macro " + repr_of(macro.name) + " takes no keyword argument " +
                      repr_of(name));
        }
    }
    ++macro_depth_;
    TextBuilder body(budget_);
    {
        const CallScope frame(*this);
        for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
            const Macro::Parameter& parameter = macro.parameters[i];
            const auto keyword =
                std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                             [&](const auto& item) { return item.first == parameter.spelling; });
            if (i < given) {
                bind(parameter.name, arguments.positional[i]);
            } else if (keyword != arguments.keyword.end()) {
                bind(parameter.name, keyword->second);
            } else if (parameter.default_value) {
                bind(parameter.name, evaluate(*parameter.default_value));
            } else {
                bind(parameter.name,
                     undefined("parameter " + repr_of(parameter.spelling) + " was not provided"));
            }
        }
        execute(macro.body, body);
    }
    --macro_depth_;
    return body.finish();
}

}  // namespace replica::chat::jinja
