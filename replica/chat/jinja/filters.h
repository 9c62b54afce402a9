// The filters: what stands behind `|`. The table is in filters.cpp; those that walk sequences are
// in sequence_filters.cpp, those that turn one value into another in value_filters.cpp.
#pragma once

#include <string_view>

#include "replica/chat/jinja/arguments.h"

namespace replica::chat::jinja::filters {

using Filter = Value (*)(Interpreter&, const Value& input, const CallArguments&);

// value_filters.cpp
Value trim(Interpreter&, const Value&, const CallArguments&);
Value upper(Interpreter&, const Value&, const CallArguments&);
Value lower(Interpreter&, const Value&, const CallArguments&);
Value capitalize(Interpreter&, const Value&, const CallArguments&);
Value title(Interpreter&, const Value&, const CallArguments&);
Value replace(Interpreter&, const Value&, const CallArguments&);
Value indent(Interpreter&, const Value&, const CallArguments&);
Value string(Interpreter&, const Value&, const CallArguments&);
Value to_json(Interpreter&, const Value&, const CallArguments&);
Value default_value(Interpreter&, const Value&, const CallArguments&);
Value integer(Interpreter&, const Value&, const CallArguments&);
Value real(Interpreter&, const Value&, const CallArguments&);
Value absolute(Interpreter&, const Value&, const CallArguments&);
Value round(Interpreter&, const Value&, const CallArguments&);

// sequence_filters.cpp
Value length(Interpreter&, const Value&, const CallArguments&);
Value first(Interpreter&, const Value&, const CallArguments&);
Value last(Interpreter&, const Value&, const CallArguments&);
Value list(Interpreter&, const Value&, const CallArguments&);
Value join(Interpreter&, const Value&, const CallArguments&);
Value items(Interpreter&, const Value&, const CallArguments&);
Value reverse(Interpreter&, const Value&, const CallArguments&);
Value map(Interpreter&, const Value&, const CallArguments&);
Value select(Interpreter&, const Value&, const CallArguments&);
Value reject(Interpreter&, const Value&, const CallArguments&);
Value select_attribute(Interpreter&, const Value&, const CallArguments&);
Value reject_attribute(Interpreter&, const Value&, const CallArguments&);

// sorting_filters.cpp
Value dictsort(Interpreter&, const Value&, const CallArguments&);
Value sort(Interpreter&, const Value&, const CallArguments&);
Value unique(Interpreter&, const Value&, const CallArguments&);
Value sum(Interpreter&, const Value&, const CallArguments&);
Value minimum(Interpreter&, const Value&, const CallArguments&);
Value maximum(Interpreter&, const Value&, const CallArguments&);

/// `attribute` of map and its kin: dotted names and integers; steps through get_item.
Value attribute_of(Interpreter& interpreter, const Value& value, const Value& path);

}  // namespace replica::chat::jinja::filters
