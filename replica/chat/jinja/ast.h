// The tree of a compiled template: statements that print or decide, expressions that have a value.
// Built once by the parser, never changed, walked by the interpreter. Names are numbers (NameId),
// so that a lookup compares integers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "replica/chat/jinja/value.h"

namespace replica::chat::jinja {

using NameId = int;

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Literal {
    Value value;
};
struct Name {
    NameId id = 0;
};
struct SequenceDisplay {
    bool is_tuple = false;
    std::vector<ExpressionPtr> items;
};
struct MappingDisplay {
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
    enum class Op { kNot, kMinus, kPlus } op = Op::kNot;
    ExpressionPtr operand;
};
struct Arithmetic {
    enum class Op { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo } op = Op::kAdd;
    ExpressionPtr left, right;
};
struct Logic {
    bool is_and = false;
    ExpressionPtr left, right;
};
struct Comparison {
    enum class Op { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
    ExpressionPtr first;
    std::vector<std::pair<Op, ExpressionPtr>> rest;  // 1 < a < 3 is one comparison with two
};
struct Concatenation {
    std::vector<ExpressionPtr> parts;
};
struct Conditional {
    ExpressionPtr condition, when_true, when_false;  // the last may be null
};
struct Attribute {
    ExpressionPtr object;
    TextPtr name;
};
struct Item {
    ExpressionPtr object, index;
};
struct Slice {
    ExpressionPtr object, begin, end, step;  // the last three may be null
};
struct Arguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> keyword;
};
struct Call {
    ExpressionPtr callee;
    Arguments arguments;
};
struct FilterCall {
    ExpressionPtr input;  // null in the filters of a block `set`
    std::string name;
    Arguments arguments;
};
struct TestCall {
    ExpressionPtr input;
    std::string name;
    Arguments arguments;
};

struct Expression {
    using Node = std::variant<Literal, Name, SequenceDisplay, MappingDisplay, Unary, Arithmetic,
                              Logic, Comparison, Concatenation, Conditional, Attribute, Item, Slice,
                              Call, FilterCall, TestCall>;
    Node node;
    int line = 0;
    int height = 1;  // nodes on the longest way down: bounds recursion, see kExpressionHeightMax
};

/// What `set` and `for` assign to: a name, an attribute of a namespace, or several of these.
struct Target {
    struct NamespaceAttribute {
        NameId space = 0;
        std::string attribute;
    };
    std::variant<NameId, NamespaceAttribute, std::vector<Target>> node;
};

struct Statement;
using Block = std::vector<Statement>;

struct Print {
    ExpressionPtr expression;
};
struct PrintText {
    TextPtr text;
};
struct If {
    struct Branch {
        ExpressionPtr condition;
        Block body;
    };
    std::vector<Branch> branches;
    Block otherwise;
};
struct For {
    Target target;
    ExpressionPtr sequence;
    ExpressionPtr condition;  // may be null
    Block body;
    Block otherwise;
};
struct Set {
    Target target;
    ExpressionPtr value;
};
struct SetBlock {
    Target target;
    std::vector<ExpressionPtr> filters;  // FilterCalls without input
    Block body;
};
struct Macro {
    struct Parameter {
        NameId name = 0;
        std::string spelling;
        ExpressionPtr default_value;  // may be null
    };
    NameId id = 0;
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
};
struct DefineMacro {
    std::unique_ptr<Macro> macro;
};
struct Generation {
    Block body;
};
struct Break {};
struct Continue {};

struct Statement {
    using Node = std::variant<Print, PrintText, If, For, Set, SetBlock, DefineMacro, Generation,
                              Break, Continue>;
    Node node;
    int line = 0;
};

/// A whole template and the spelling of its names.
struct Program {
    Block body;
    std::vector<std::string> names;    // by NameId
    std::vector<bool> is_read;         // by NameId: some expression reads it
    std::vector<std::string> filters;  // used ones, each once, with the line of first use
    std::vector<int> filter_lines;
    std::vector<std::string> tests;
    std::vector<int> test_lines;
};

}  // namespace replica::chat::jinja
