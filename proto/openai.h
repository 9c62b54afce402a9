// openai: everything of the OpenAI API that router and replica share, in one include.
//   fields.h              the one table of request fields
//   generation_request.h  typed fields common to both endpoints
//   chat_request.h, completion_request.h   validation
//   responses.h           answers and chunks
#pragma once

#include "proto/chat_request.h"        // IWYU pragma: export
#include "proto/completion_request.h"  // IWYU pragma: export
#include "proto/fields.h"              // IWYU pragma: export
#include "proto/generation_request.h"  // IWYU pragma: export
#include "proto/responses.h"           // IWYU pragma: export
