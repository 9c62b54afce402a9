// A model driven by hand, step by step: what the engine does, without scheduling or sampling.
// Checks use it to choose exactly which rows share a step, and to read raw logits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"
#include "replica/gguf/reader.h"
#include "replica/model/runner.h"

namespace golden {

struct SessionOptions {
    std::string backend = "cpu";  // one of backend_names()
    std::int32_t threads = 0;     // 0 = all
    std::int32_t rows_max = 512;  // of one step
    std::int32_t sequences = 8;
    std::int32_t context = 1024;
    std::int32_t block_tokens = 16;  // small pages: many page borders
    kernels::DType kv_dtype = kernels::DType::kF32;
};

enum class Rows { kLast, kAll };

/// Tokens that one sequence contributes to a step, and the rows whose logits are wanted.
struct Chunk {
    std::int32_t sequence = 0;
    std::span<const std::int32_t> tokens;
    Rows logits = Rows::kLast;
};

/// Names accepted by SessionOptions.backend, and the same in one line.
std::vector<std::string> backend_list();
std::string backend_names();
/// The backend that the options name.
tl::expected<std::unique_ptr<kernels::Backend>, std::string> make_backend(
    const SessionOptions& options);

class ModelSession {
public:
    static tl::expected<std::unique_ptr<ModelSession>, std::string> open(
        const std::filesystem::path& model, const SessionOptions& options);

    /// One trunk step; logits in chunk order, [rows asked for, V], valid until the next call.
    std::span<const float> step(std::span<const Chunk> chunks);
    std::span<const float> step(const Chunk& chunk) { return step(std::span(&chunk, 1)); }

    /// One MTP step of `sequence`: `tokens[m]` joins hidden row m of the last trunk step. All rows'
    /// logits.
    std::span<const float> step_mtp(std::int32_t sequence, std::span<const std::int32_t> tokens);

    /// Again the MTP entries [begin, begin + count) of sequence 0, each seeing all `tokens.size()`
    /// entries instead of those before it alone: every entry asks as if it were the last. The order
    /// of pages is free, so entry p swaps places with the last one. Wants pages of one token, and
    /// the entries computed by step_mtp.
    std::span<const float> step_mtp_all_visible(std::span<const std::int32_t> tokens,
                                                std::size_t begin, std::size_t count);

    /// Forgets what the sequence holds.
    void reset(std::int32_t sequence);

    const replica::GgufFile& file() const { return file_; }
    const replica::ModelConfig& config() const { return runner_->config(); }
    std::int32_t vocabulary() const { return config().vocabulary; }
    const SessionOptions& options() const { return options_; }
    /// Whether every matrix is stored in full precision; decides the tolerance.
    bool is_f32() const;

private:
    ModelSession(replica::GgufFile file, SessionOptions options);
    struct Descriptor;
    std::span<const float> run(std::span<const Chunk> chunks, std::vector<std::int32_t>& lengths,
                               bool mtp);

    replica::GgufFile file_;
    SessionOptions options_;
    std::unique_ptr<kernels::Backend> backend_;
    std::unique_ptr<replica::ModelRunner> runner_;
    std::vector<std::int32_t> trunk_lengths_, mtp_lengths_;  // [sequences] tokens held
};

}  // namespace golden
