// Walks the tree of a template: one object renders once.
//
// Scopes. Names live on one stack of bindings, cut into frames:
//
//   top level │ for body (this iteration) │ for body │ …        a `set` writes the innermost frame
//             └ base of the running call                         a read walks down to the base,
//                                                                then top level, context, functions
//
// A macro call moves the base up to its own frame, so it sees its parameters and the top level, but
// nothing of its caller. `if` opens no frame.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/chat/jinja/ast.h"

namespace replica::chat::jinja {

/// Evaluated arguments of a call, as filters, tests, methods and functions get them.
struct CallArguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> keyword;
};

class Interpreter {
public:
    Interpreter(const Program& program, const Json& context, const RenderOptions& options);

    /// Throws Fault with the line it happened on.
    Rendered run();

    // What filters, tests, methods and functions need of their surroundings.
    Budget& budget() { return budget_; }
    const RenderOptions& options() const { return options_; }
    Namespace* new_namespace();
    Value call_filter(std::string_view name, const Value& input, const CallArguments& arguments);
    bool call_test(std::string_view name, const Value& input, const CallArguments& arguments);

private:
    struct Binding {
        NameId name;
        Value value;
    };
    enum class Flow { kNormal, kBreak, kContinue };
    class FrameScope;
    class CallScope;
    class DepthScope;

    Flow execute(const Block& block, TextBuilder& out);
    Flow execute(const Statement& statement, TextBuilder& out);
    Flow execute_if(const If& statement, TextBuilder& out);
    Flow execute_for(const For& statement, TextBuilder& out);
    SequencePtr select_items(const For& statement);
    Flow execute_set_block(const SetBlock& statement);
    void assign(const Target& target, Value value);
    void bind(NameId name, Value value);
    Value look_up(NameId name) const;

    Value evaluate(const Expression& expression);
    Value evaluate_node(const Literal& node);
    Value evaluate_node(const Name& node);
    Value evaluate_node(const SequenceDisplay& node);
    Value evaluate_node(const MappingDisplay& node);
    Value evaluate_node(const Unary& node);
    Value evaluate_node(const Arithmetic& node);
    Value evaluate_node(const Logic& node);
    Value evaluate_node(const Comparison& node);
    Value evaluate_node(const Concatenation& node);
    Value evaluate_node(const Conditional& node);
    Value evaluate_node(const Attribute& node);
    Value evaluate_node(const Item& node);
    Value evaluate_node(const Slice& node);
    Value evaluate_node(const Call& node);
    Value evaluate_node(const FilterCall& node);
    Value evaluate_node(const TestCall& node);
    CallArguments evaluate_arguments(const Arguments& arguments);
    Value call(const Value& callee, const CallArguments& arguments);
    Value call_macro(const Macro& macro, const CallArguments& arguments);

    const Program& program_;
    const RenderOptions& options_;
    Budget budget_;
    std::vector<Value> context_;    // by NameId; undefined where the context has no such name
    std::vector<Value> top_level_;  // by NameId
    std::vector<bool> is_set_;      // by NameId: top_level_ holds it
    std::vector<bool> is_given_;    // by NameId: context_ or the functions hold it
    std::vector<Binding> bindings_;
    std::size_t call_base_ = 0;    // bindings_ below it belong to callers
    std::size_t frame_begin_ = 0;  // of the innermost frame
    bool is_top_level_ = true;     // no frame is open: `set` writes top_level_
    std::size_t macro_depth_ = 0;
    std::size_t loop_depth_ = 0;
    int depth_ = 0;  // evaluations within each other
    int line_ = 0;   // of what is being evaluated
    NameId loop_name_ = -1;
    std::vector<std::unique_ptr<Namespace>> namespaces_;
    std::vector<std::unique_ptr<Loop>> loops_;
};

// Operators and access, in files of their own; all throw Fault.
Value arithmetic(Budget& budget, Arithmetic::Op op, const Value& left, const Value& right);
Value negate(const Value& value, Unary::Op op);
bool contains(Budget& budget, const Value& container, const Value& item);
Value get_attribute(Budget& budget, const Value& object, const TextPtr& name);
Value get_item(Budget& budget, const Value& object, const Value& index);
struct SliceBounds {
    Value begin, end, step;  // none where the template gave nothing
};
Value get_slice(Budget& budget, const Value& object, const SliceBounds& bounds);

/// A method of `object` bound to it, a miss that says it is unsafe, or nothing.
std::optional<Value> find_method(const Value& object, std::string_view name);
Value call_method(Interpreter& interpreter, const Callable& method, const CallArguments& arguments);
/// Whether the environment has a function of this name.
bool is_function(std::string_view name);
Value call_function(Interpreter& interpreter, std::string_view name,
                    const CallArguments& arguments);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace replica::chat::jinja
