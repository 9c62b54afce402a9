// fake_replica: a scripted replica for tests of the router. It speaks what a replica speaks to a
// router (status stream, done events, generation, metrics) on a loop of timers instead of a model.
//
//   engine model   `slots` sequences run at once, others wait in order; prompts are prefilled one
//                  after another at `prefill_rate`, then tokens come every `token_ms`
//   faults         flags of the process: refuse, die or reset in the middle of an event, die before
//                  the first byte of requests with a given text, split writes into small segments
//   a request      may set its own times in its text: "ttft_ms=60000 tokens=5 token_ms=1", and after
//                  how many bytes its plain answer comes to a halt: "hold_after=2000000"
//
// Every request leaves lines on stdout: arrival, then end, abort or refused, each with `at_us=`,
// the steady clock of this machine, so that a test can subtract its own. Answers depend on the
// request alone, so that a stream can be compared byte for byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_cache.h"

namespace fake {

struct Options {
    int port = 0;
    int index = 0;
    std::string instance = "00000000000000f0";
    std::string model = "fake";
    int slots = 8;
    std::int64_t max_model_len = 131072;
    std::int64_t kv_blocks = 0;  // of kBlockTokens tokens; 0: it reports no memory
    int gpus = 1;
    double prefill_rate = 1e9;  // tokens per second
    // none; boundary: what was prefilled once is not again; evicting: of the last prompt only
    std::string cache = "none";
    std::chrono::milliseconds ttft{0};
    std::chrono::milliseconds token{0};
    int tokens = 8;

    std::optional<int> refuse;      // answer every generation with this status
    std::string refuse_on;          // only those with this text; empty: all
    int retry_after = 1;            // with 429 and 503; 0: it does not say
    bool reports_full = false;      // its reports show no free slot, as those of a busy replica
    std::size_t segment_bytes = 0;  // 0: whole events
    std::optional<int> die_after_events;       // then half an event, then SIGKILL to itself
    std::optional<int> reset_after_events;     // then half an event, then the connection is cut
    std::optional<int> truncate_after_events;  // then half an event, then a proper end of the body
    std::size_t event_bytes = 0;               // a comment makes each event this long
    std::string drop_on;       // a request with this text has its connection closed, no byte sent
    std::string garbage;       // answers that are no HTTP: the kinds of garbage_front.h
    std::string garbage_on;    // only for requests with this text; empty: all
    std::string die_on;        // a request with this text kills the process before its first byte
    std::string events_on;     // faults after events only for requests with this text; empty: all
    bool no_progress = false;  // takes work, answers /health, and makes no step
    bool health_lies = false;  // /health says 503 while all is well
    bool no_stream = false;    // the status stream is not served, only polls
    int info_fails = 0;        // /info answers 503 this many times first
};

inline constexpr int kBlockTokens = 64;

/// What a request asks of the fake.
struct Script {
    std::chrono::milliseconds ttft{0};
    std::chrono::milliseconds token{0};
    int tokens = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;          // set when its prefill begins
    std::vector<MessageEnd> ends;            // of a chat
    std::optional<std::int64_t> hold_after;  // bytes of an answer that is no stream, then nothing
    bool is_stream = false;
    bool is_chat = true;
    bool has_fault_text = false;
    bool has_die_text = false;
};

/// The number behind `name=` in a text, if there is one.
std::optional<std::int64_t> directive(const std::string& text, const std::string& name);

/// Reads the body with the text directives; the body has been validated by the router, or by the
/// test itself, and is not checked again.
Script read_script(const Options& options, const std::string& path, const std::string& body);

/// The n-th token of every answer: ASCII, CJK and emoji in turn.
std::string token_text(int n);

/// One event of the stream, and the whole answer.
std::string chunk_event(const Script& script, int n);
std::string finish_event(const Script& script);
std::string whole_answer(const Script& script);

}  // namespace fake
