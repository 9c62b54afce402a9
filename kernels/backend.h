// THE seam: what a model asks of a device.
//
// Operations are the size of a model's sentences, so that a backend may fuse inside. Each takes one
// struct of tensor views (capacities only); the live row counts come from the step descriptor.
// No operation allocates after `prepare`, synchronises or reads back; `finish_step` does both.
//
//   load:  allocate · upload · pack ─▶ prepare (may refuse, in words)
//   step:  begin_step(descriptor) ─▶ embed · linear · delta_net · attention · head · sample ─▶
//   finish_step
//   between steps:  copy_item · read_item · write_item (prefix cache, forks)
//
// Verify steps. A sequence whose rows may be taken back (drafts) does not commit: its recurrent
// state stays at its last committed token, and each row leaves the update it would have made in a
// replay buffer. Its next step first replays the rows that were accepted. Attention needs no such
// care: pages past kv_len_before are written anew.
//
// Numerics. A row's result depends on that row and its sequence alone: not on the other rows of the
// step, not on how a prompt was split into steps, not on the number of threads. On the CPU backend
// this holds bit for bit, which is what lets tests compare a batch with single runs exactly.
//
// One thread, the engine's, calls a backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/armed.h"
#include "kernels/tensor.h"

namespace kernels {

// ---------------------------------------------------------------------------------------------
// The step descriptor

struct LogitBias {
    std::int32_t token;
    float bias;  // -100 and below bans the token
};

/// How often a token occurred; drives the penalties.
struct TokenCount {
    std::int32_t token;
    std::int32_t generated;  // frequency and presence penalty count these
    std::int32_t in_prompt;  // repetition penalty counts these too
};

/// How one logit row becomes a token. Pure data, the same on every backend; order of application as
/// in kernels/sampling.h.
struct SamplingRow {
    float temperature = 1.0F;  // below kGreedyTemperature: argmax, lowest id on ties
    std::int32_t top_k = 0;    // 0 = off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    std::uint64_t seed = 0;
    std::uint64_t draw_index = 0;  // (choice index << 32) | position: the draw's only other input
    // -1 = none; else the log-probabilities of the drawn token and of this many best ones, taken
    // from the raw logits: before bias, penalties, bans and temperature.
    std::int32_t top_logprobs = -1;      // at most kTopLogprobsMax
    std::span<const LogitBias> bias;     // owned by the caller until finish_step
    std::span<const TokenCount> counts;  // empty when no penalty is set
    // Drafts in front of this row of a verify step: generated tokens that `counts` does not hold
    // yet. Empty when no penalty is set.
    std::span<const std::int32_t> drafted;
    std::span<const std::int32_t>
        banned;  // ids that must not be drawn (end tokens under min_tokens)
};

/// api.md section 3: the most alternatives a request may ask for.
inline constexpr std::int32_t kTopLogprobsMax = 20;

struct TokenLogprob {
    std::int32_t token = -1;
    float logprob = 0.0F;
};

/// Log-probabilities of one logit row.
struct RowLogprobs {
    float drawn = 0.0F;                               // of the token that was drawn
    std::int32_t top_count = 0;                       // as asked, at most the vocabulary
    std::array<TokenLogprob, kTopLogprobsMax> top{};  // best first, lowest id on ties
};

/// Any mix of sequences: one row (decode), many rows (a prefill chunk), 1 + drafts (verify).
/// Everything is owned by the caller and unchanged until finish_step.
struct StepDescriptor {
    std::int32_t rows = 0;        // tokens in this step
    std::int32_t seqs = 0;        // sequences in this step
    std::int32_t logit_rows = 0;  // rows that go through the head

    std::span<const std::int32_t> token;       // [rows]
    std::span<const std::int32_t> position;    // [rows]
    std::span<const std::int32_t> seq_of_row;  // [rows] index into the per-sequence fields

    // Sequence s owns rows row_begin[s] .. row_begin[s+1]-1, in order of position.
    std::span<const std::int32_t> row_begin;      // [seqs + 1]
    std::span<const std::int32_t> kv_len_before;  // [seqs] tokens already in KV and state; 0 =
                                                  // fresh: the recurrent state then starts at zero
    std::span<const std::int32_t> kv_len;         // [seqs] kv_len_before + rows of the sequence
    std::span<const std::int32_t>
        state_slot;  // [seqs] recurrent slot; slot 0 is scratch, never owned
    // [seqs] rows of the sequence's last verify step that were accepted: the recurrent state takes
    // them over first. They count in kv_len_before. Empty = none anywhere.
    std::span<const std::int32_t> replay_rows;
    // [seqs] 1: the state takes this step's rows over; 0: they go to the replay buffer. Empty = all
    // commit.
    std::span<const std::uint8_t> commit;
    std::span<const std::int32_t> block_table;  // [seqs, blocks_per_seq_max]; -1 is never read
    std::int32_t blocks_per_seq_max = 0;

    std::span<const std::int32_t> logit_row;  // [logit_rows] row indices, ascending
    std::span<const SamplingRow> sampling;    // [logit_rows]; empty = logits only, nothing is drawn
    bool wants_logits = false;                // StepOutputs.logits is filled

    // MTP passes only: [rows] the row of MtpJoinArgs.hidden that row m joins.
    std::span<const std::int32_t> hidden_row;
};

struct StepOutputs {
    std::span<const std::int32_t> sampled;  // [logit_rows]; empty when nothing was drawn
    std::span<const std::uint8_t> error;    // [logit_rows] 1 = no finite logit: that request fails
    std::span<const float> logits;          // [logit_rows, vocabulary], raw; only when wanted
    std::span<const RowLogprobs> logprobs;  // [logit_rows]; empty when no row asked; a row that did
                                            // not ask holds nothing of use
};

// ---------------------------------------------------------------------------------------------
// Operation arguments. Letters: M rows of the step, H model width, K inputs, N outputs, D head
// size.

/// Where a matrix comes from: rows of file blocks, `n` outputs of `k` inputs each.
struct MatrixSource {
    std::string_view name;  // the tensor's, for messages
    DType dtype = DType::kF32;
    const void* blocks = nullptr;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

/// A matrix the backend holds: one to four segments stacked along N. Value handle.
struct MatrixView {
    std::int32_t id = -1;
    std::int64_t n = 0;
    std::int64_t k = 0;
    bool empty() const { return id < 0; }
};

enum class Epilogue { kStore, kAddResidual, kSwiGlu };

struct EmbedArgs {
    MatrixView table;  // [V, H]
    TensorView x;      // [M, H] f32
};

/// y = epilogue( W · prologue(x) ), rows 0..M-1.
struct LinearArgs {
    TensorView x;            // [M, K] f32
    TensorView norm_weight;  // [K] f32; empty = no RMSNorm in front
    float norm_eps = 0.0F;
    MatrixView w;     // segments stacked along N
    TensorView bias;  // [N] f32; empty = none
    Epilogue epilogue = Epilogue::kStore;
    TensorView y;  // kStore [M, N]; kAddResidual [M, N] is added to; kSwiGlu [M, N/2]: silu(first
                   // half) * second half
};

/// Value head j reads key head j mod n_k (qwen35) or j div r (qwen3next).
enum class HeadOrder { kTiled, kGrouped };

/// Gated delta net, from the projections to the gated norm (Yang et al. 2024, "Gated Delta
/// Networks"). S is the state_size x state_size memory of a value head; conv, SiLU, L2 norms, gates
/// are inside. A sequence without rows in the step only replays.
struct DeltaNetArgs {
    std::int32_t n_k = 0, n_v = 0, state_size = 0, conv_kernel = 0;
    float norm_eps = 0.0F;
    TensorView u;  // [M, conv_dim] f32: q (n_k), k (n_k), v (n_v) heads before the convolution
    TensorView z;  // [M, n_v * state_size] f32 output gate
    TensorView beta, alpha;  // [M, n_v] f32, raw projections
    TensorView conv_w;       // [conv_dim, conv_kernel] f32; the last tap meets the current token
    TensorView dt_bias, a;   // [n_v] f32; a = -exp(A_log)
    TensorView norm_weight;  // [state_size] f32
    TensorView state;        // [slots, n_v, state_size (value), state_size (key)] f32
    // [slots, ring, conv_dim] f32: what went into the convolution, token p of a sequence at row
    // p mod ring. ring >= conv_kernel - 1, and with verify steps as many more as replay has rows,
    // so that rows taken back, be it all of them, overwrite nothing that is still needed. Rows
    // before the sequence's first token count as zeros.
    TensorView conv_ring;
    // [slots, 1 + drafts, n_k * state_size + n_v * state_size + n_v] f32: of each row of the last
    // verify step the unit keys, the deltas and the decay factors exp(g). Replaying them gives the
    // state bit for bit. Empty = no verify steps.
    TensorView replay;
    HeadOrder head_order = HeadOrder::kTiled;
    TensorView y;  // [M, n_v * state_size] f32
};
/// The least rows of conv_ring.
inline std::int64_t conv_ring_rows_min(const DeltaNetArgs& args) {
    return args.conv_kernel - 1 + (args.replay.empty() ? 0 : args.replay.shape[1]);
}

enum class RopePairing { kHalfSplit, kAdjacent };

/// One attention layer's pages. Page b holds tokens of one sequence: [kv head][block_tokens][D].
struct KvLayer {
    TensorView k, v;  // [blocks, n_kv, block_tokens, D] f16 or f32
};

/// q/k norm, RoPE, KV append, causal attention over the pages, output gate.
struct AttentionArgs {
    std::int32_t n_h = 0, n_kv = 0, head_dim = 0, n_rot = 0;
    bool has_gate = false;  // qwen35: per query head [q (D), gate (D)], output times sigmoid(gate)
    float norm_eps = 0.0F;
    TensorView q;               // [M, n_h * D * (has_gate ? 2 : 1)] f32
    TensorView k, v;            // [M, n_kv * D] f32
    TensorView q_norm, k_norm;  // [D] f32; empty = none
    TensorView rope;  // [positions, n_rot] f32: cos of the n_rot/2 pairs, then sin; made in f64
    RopePairing pairing = RopePairing::kHalfSplit;
    KvLayer kv;
    TensorView y;  // [M, n_h * D] f32
};

/// hidden = RMSNorm(x) for every row; logits = W · hidden for the descriptor's logit rows.
struct HeadArgs {
    TensorView x;            // [M, H] f32
    TensorView norm_weight;  // [H] f32
    float norm_eps = 0.0F;
    MatrixView w;       // [V, H]; empty = hidden only
    TensorView hidden;  // [M, H] f32
    TensorView logits;  // [logit rows, V] f32
};

/// Draws one token per logit row by the descriptor's sampling rows.
struct SampleArgs {
    TensorView logits;  // [logit rows, V] f32, left as they are
    std::int32_t vocabulary_used =
        0;  // ids from here on are padding of the table and are never drawn
};

/// m = [ RMSNorm(E[token]) ; RMSNorm(hidden row) ]: what the MTP block's eh_proj reads. Which row
/// of `hidden` row m joins stands in the descriptor's hidden_row.
struct MtpJoinArgs {
    MatrixView table;                                  // [V, H]
    TensorView embed_norm_weight, hidden_norm_weight;  // [H] f32
    float norm_eps = 0.0F;
    TensorView hidden;  // [any, H] f32, the trunk's or the block's own
    TensorView joined;  // [M, 2H] f32
};

// ---------------------------------------------------------------------------------------------

struct DeviceInfo {
    std::string name;  // "cpu (avx2, 4 threads)"
    std::uint64_t memory_bytes_free = 0;
    bool memory_is_host = false;  // the same that programs live in
    std::string uuid;             // "GPU-5a1c..."; empty on the CPU
};

/// The device has no room for a piece of memory, asked for while loading.
class OutOfDeviceMemory : public std::bad_alloc {
public:
    explicit OutOfDeviceMemory(std::string text) : text_(std::move(text)) {}
    const char* what() const noexcept override { return text_.c_str(); }

private:
    std::string text_;
};

enum class RefusalKind {
    kUnsupported,  // a retry cannot help
    kMemory,       // more free memory would
};

/// Why something cannot run, in four parts; text() joins them into one sentence.
struct Refusal {
    std::string subject;  // op and tensor: "blk.3.attn_q: linear"
    std::string value;    // "type IQ3_S"
    std::string rule;     // "is not supported"
    std::string remedy;   // "re-quantise it to IQ4_XS"
    RefusalKind kind = RefusalKind::kUnsupported;
    std::string text() const;
};

/// What a step can be at most.
struct StepLimits {
    std::int32_t rows = 0;
    std::int32_t seqs = 0;
    std::int32_t logit_rows = 0;
    std::int32_t blocks_per_seq = 0;
    std::int32_t vocabulary = 0;
    std::int32_t inputs_max =
        0;  // the largest K of any linear: sizes the scratch for quantised activations
    std::int32_t delta_key_heads = 0;  // of the largest delta net; 0 = there is none
    std::int32_t delta_value_heads = 0;
};

/// What a model does in a step. A program's operations and their arguments follow from the step's
/// counts alone: sequences, rows of each, logit rows, whether tokens are drawn.
enum class StepProgram { kTrunk, kDraftFromTrunk, kDraftFromDraft, kReplay };

class Backend {
public:
    virtual ~Backend() = default;

    virtual DeviceInfo device() const = 0;
    /// The custom kernels that have a fallback, with their counters of now. None on the CPU. Any
    /// thread.
    virtual std::vector<KernelEntry> armed_kernels() const { return {}; }

    /// Device memory that `pack` would keep of these sources: follows from types and shapes alone,
    /// the blocks are not read. Here: what the file has.
    virtual std::uint64_t packed_bytes(std::span<const MatrixSource> sources) const;
    /// Device memory that `prepare` would take for such steps, beside what callers allocate: exact
    /// once all matrices are packed, before that no less.
    virtual std::uint64_t scratch_bytes(const StepLimits& /*limits*/) const { return 0; }
    /// Device memory that loading takes beside what it keeps, until `prepare`.
    virtual std::uint64_t load_bytes() const { return 0; }
    /// `on_bytes` hears of bytes of the sources that `pack` has read. A backend that reads nothing,
    /// since it refers to the blocks, never calls it.
    virtual void watch_loading(std::function<void(std::uint64_t bytes)> /*on_bytes*/) {}

    // Load. Memory lives as long as the backend; contents of `allocate` start as zeros. All may
    // throw OutOfDeviceMemory.
    virtual TensorView allocate(DType dtype, std::span<const std::int64_t> shape) = 0;
    virtual TensorView upload_f32(std::span<const float> values,
                                  std::span<const std::int64_t> shape) = 0;
    /// Stacks the sources along N. The CPU backend refers to the blocks, which must outlive it; a
    /// GPU backend repacks them. Refuses types it has no kernel for.
    virtual std::optional<Refusal> pack(std::span<const MatrixSource> sources, MatrixView& out) = 0;
    /// Reserves all scratch. Called once, after the last `pack`; nothing is allocated afterwards.
    virtual std::optional<Refusal> prepare(const StepLimits& limits) = 0;

    // Between steps. An item is one index of a tensor's first dimension: a state slot, a KV page, a
    // row. In order with the steps around them; `read_item` waits until `to` is filled,
    // `write_item` until `from` may change.
    virtual void copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) = 0;
    virtual void read_item(const TensorView& tensor, std::int64_t index,
                           std::span<std::byte> to) = 0;
    virtual void write_item(const TensorView& tensor, std::int64_t index,
                            std::span<const std::byte> from) = 0;

    // Step.
    virtual void begin_step(const StepDescriptor& step) = 0;
    /// Right behind begin_step: true when the backend has kept what `program` does in a step of
    /// these counts. Its operations then need not be called, all but `sample`.
    virtual bool repeats(StepProgram /*program*/) { return false; }
    virtual void embed(const EmbedArgs& args) = 0;
    virtual void linear(const LinearArgs& args) = 0;
    virtual void delta_net(const DeltaNetArgs& args) = 0;
    virtual void attention(const AttentionArgs& args) = 0;
    virtual void head(const HeadArgs& args) = 0;
    virtual void mtp_join(const MtpJoinArgs& args) = 0;
    virtual void sample(const SampleArgs& args) = 0;
    /// Waits for the step. The views stay valid until the next begin_step.
    virtual const StepOutputs& finish_step() = 0;

    // A step that is not run but made ready ahead of its first use: operations come between the two
    // as in a step. False = this backend keeps no such steps, and nothing has begun.
    virtual bool begin_rehearsal(const StepDescriptor& /*step*/, StepProgram /*program*/) {
        return false;
    }
    virtual void finish_rehearsal() {}
};

}  // namespace kernels
