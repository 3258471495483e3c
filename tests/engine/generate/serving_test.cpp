// A scheduler that serves requests of other threads: what each gets is what it would get alone,
// whoever comes and goes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <thread>

#include "engine/evaluate/token_scores.h"
#include "kvant/generator.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

// ---- Texts of other threads ---------------------------------------------------------------------

// One text of a client: a prompt, how it is sampled and what it should become.
struct Order {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  int64_t max_tokens = 24;
  std::vector<TokenId> expected = {};
};

TextRequest::Setup SetupOf(const std::shared_ptr<const Model>& model, const Order& order) {
  GenerateOptions options;
  options.max_tokens = order.max_tokens;
  options.ignore_eos = true;
  return {.tokenizer = SharedTokenizer(model),
          .input = std::make_shared<TextInput>(TextInput{order.prompt}),
          .options = options,
          .sampling = order.sampling,
          .vocab_size = model->vocab_size()};
}

SessionOptions ServedBy(KvType type, int threads, int64_t sequences) {
  SessionOptions options = Options(type, sequences);
  options.threads = threads;
  options.kv_check = false;
  return options;
}

// Greedy and seeded texts of prompts with these lengths, and what each is alone.
std::vector<Order> OrdersOf(const std::shared_ptr<const Model>& model, KvType type, size_t count) {
  std::vector<Order> orders;
  auto runner = OpenRunner(model, ServedBy(type, 1, 1));
  constexpr size_t kLengths[] = {3, 70, 1, 130, 33, 64};
  for (size_t i = 0; i < count; ++i) {
    Order& order = orders.emplace_back();
    order.prompt = RandomTokens(kLengths[i % std::size(kLengths)], static_cast<uint32_t>(i));
    order.sampling.temperature = i % 2 == 0 ? 0.0f : 1.1f;
    order.sampling.seed = 100 + i;
    TextRequest text(SetupOf(model, order));
    Scheduler scheduler(*runner, {});
    scheduler.Submit(text);
    ExpectOk(scheduler.Drain());
    order.expected = text.generation().ids;
  }
  return orders;
}

// A text, and a way to wait for its end.
class Client {
 public:
  Client(const std::shared_ptr<const Model>& model, const Order& order) {
    TextRequest::Setup setup = SetupOf(model, order);
    setup.on_token = [this](TokenId id, const TokenLogProbs*) {
      const std::lock_guard lock(mutex_);
      shown_.push_back(id);
      changed_.notify_all();
    };
    const auto end = [this] {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    };
    setup.on_end = [end](TextRequest&) {
      end();
      return true;
    };
    setup.on_failure = [end](const Error&) { end(); };
    request = std::make_shared<TextRequest>(std::move(setup));
  }

  void WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
  }
  void WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || shown_.size() >= count; });
  }

  std::shared_ptr<TextRequest> request;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> shown_;
  bool ended_ = false;
};

// Serves in a thread of its own, until it is stopped.
class ServingThread {
 public:
  ServingThread(Runner& runner, const SchedulerOptions& options)
      : scheduler(runner, options), thread_([this] { status_ = scheduler.Serve(); }) {}
  ~ServingThread() { (void)Stop(); }

  Status Stop() {
    scheduler.Stop();
    if (thread_.joinable()) thread_.join();
    return status_;
  }

  Scheduler scheduler;

 private:
  Status status_;
  std::thread thread_;
};

// Many threads, each with one text after the other.
TEST_P(RunnerKinds, TextsOfManyThreadsAreThoseOfSingleOnes) {
  constexpr size_t kClients = 32;
  const auto model = OpenModel();
  const std::vector<Order> orders = OrdersOf(model, GetParam().type, 40);
  for (const int threads : {1, 4}) {
    auto runner = OpenRunner(model, ServedBy(GetParam().type, threads, 10));
    ServingThread serving(*runner, {.stall = 0.001, .ageing = 0.5});
    std::vector<std::thread> clients;
    for (size_t number = 0; number < kClients; ++number) {
      clients.emplace_back([&, number] {
        for (size_t i = number; i < orders.size(); i += kClients) {
          Client client(model, orders[i]);
          ExpectOk(serving.scheduler.Submit(client.request));
          client.WaitForEnd();
          EXPECT_EQ(client.request->generation().ids, orders[i].expected) << i;
          EXPECT_EQ(client.request->generation().finish_reason, FinishReason::kLength);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    ExpectOk(serving.Stop());
    const SchedulerCounters counters = serving.scheduler.counters();
    EXPECT_EQ(counters.ended, orders.size());
    EXPECT_EQ(counters.running, 0);
    EXPECT_EQ(counters.waiting, 0);
    EXPECT_EQ(counters.failed + counters.cancelled, 0u);
    EXPECT_EQ(runner->stats().sequences, 0);
    ExpectOk(runner->Check());
  }
}

// Prompts arrive and clients leave, in every state, while memory is short: those that stay have the
// texts that they have alone.
TEST_P(RunnerKinds, ClientsThatLeaveChangeNoOtherText) {
  const auto model = OpenModel();
  const std::vector<Order> orders = OrdersOf(model, GetParam().type, 12);
  SessionOptions session = ServedBy(GetParam().type, 2, 6);
  session.kv_bytes_max = PlanMemory(*model, ServedBy(GetParam().type, 1, 1))->kv / 2;
  auto runner = OpenRunner(model, session);
  ServingThread serving(*runner, {.stall = 0.001});
  std::vector<std::unique_ptr<Client>> stay;
  std::vector<std::unique_ptr<Client>> leave;
  for (size_t i = 0; i < orders.size(); ++i) {
    ExpectOk(serving.scheduler.Submit(
        stay.emplace_back(std::make_unique<Client>(model, orders[i]))->request,
        {.priority = static_cast<int>(i % 2)}));
    Order endless = orders[i];
    endless.max_tokens = -1;
    Client& other = *leave.emplace_back(std::make_unique<Client>(model, endless));
    ExpectOk(serving.scheduler.Submit(other.request));
    if (i % 3 == 0) {
      other.request->Cancel();  // in the inbox or in its prompt
    } else if (i % 3 == 1) {
      std::thread([&other] { other.request->Cancel(); }).join();
    }
  }
  for (size_t i = 0; i < orders.size(); ++i) {
    if (i % 3 == 2) {
      leave[i]->WaitForTokens(2);
      leave[i]->request->Cancel();
    }
    leave[i]->WaitForEnd();
    const Status& status = leave[i]->request->status();
    EXPECT_TRUE(status.ok() || status.Is(ErrorCode::kCancelled)) << status.error().message;
  }
  for (size_t i = 0; i < orders.size(); ++i) {
    stay[i]->WaitForEnd();
    EXPECT_EQ(stay[i]->request->generation().ids, orders[i].expected) << i;
  }
  ExpectOk(serving.Stop());
  EXPECT_EQ(runner->stats().sequences, 0);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  ExpectOk(runner->Check());
}

TEST(Serving, StopEndsWhatIsThere) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, ServedBy(KvType::kF16, 1, 1));
  ServingThread serving(*runner, {});
  TextRequest::Setup setup = SetupOf(model, {.prompt = RandomTokens(5, 1), .sampling = {}});
  const auto waiting = std::make_shared<TextRequest>(setup);
  std::atomic<bool> begun = false, told_to_stop = false;
  setup.on_token = [&](auto&&...) { begun = true, begun.notify_all(), told_to_stop.wait(false); };
  const auto running = std::make_shared<TextRequest>(setup);
  ExpectOk(serving.scheduler.Submit(running));
  begun.wait(false);
  ExpectOk(serving.scheduler.Submit(waiting));
  serving.scheduler.Stop();
  told_to_stop = true, told_to_stop.notify_all();
  ExpectOk(serving.Stop());
  EXPECT_TRUE(running->status().Is(ErrorCode::kCancelled));
  EXPECT_EQ(waiting->generation().finish_reason, FinishReason::kCancelled);
  const auto late = std::make_shared<TextRequest>(setup);
  EXPECT_TRUE(serving.scheduler.Submit(late).Is(ErrorCode::kCancelled));
  EXPECT_EQ(late->state(), Request::State::kNew);
  EXPECT_EQ(runner->stats().sequences, 0);
}

std::ptrdiff_t CountDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}

// A tenth of 10,000 short requests from 64 threads leave, wherever they are: nothing grows after
// the first thousand.
TEST(Serving, NothingIsLeftOfTenThousandRequests) {
  constexpr uint32_t kThreads = 64;
  constexpr uint32_t kRequests = 10000;
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = ServedBy(KvType::kF16, 1, 8);
  session.prefix_cache = true;
  session.kv_bytes_max = PlanMemory(*model, ServedBy(KvType::kF16, 1, 1))->kv;
  session.prefix_bytes_max = session.kv_bytes_max / 2;
  auto runner = OpenRunner(model, session);
  ServingThread serving(*runner, {.stall = 0.01});
  const std::ptrdiff_t descriptors = CountDescriptors();
  std::atomic<uint32_t> next = 0;
  std::atomic<uint32_t> others = 0;
  std::atomic<size_t> allocated = 0;  // bytes after the first thousand
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&] {
      for (uint32_t i = next++; i < kRequests; i = next++) {
        Client client(
            model,
            {.prompt = RandomTokens(1 + i * 37 % 90, i % 11), .sampling = {}, .max_tokens = 3});
        ExpectOk(serving.scheduler.Submit(client.request));
        if (i % 10 == 0) {
          if (i % 30 == 0) client.WaitForTokens(1);
          client.request->Cancel();
        }
        client.WaitForEnd();
        if (client.request->generation().ids.size() != 3) ++others;
        if (i == kRequests / 10) allocated = mallinfo2().uordblks;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectOk(serving.Stop());
  EXPECT_LE(others.load(), kRequests / 10);
  EXPECT_EQ(serving.scheduler.counters().ended, kRequests);
  EXPECT_EQ(CountDescriptors(), descriptors);
  const RunnerStats stats = runner->stats();
  EXPECT_EQ(stats.sequences, 0);
  EXPECT_EQ(stats.snapshots, 0);
  EXPECT_LE(stats.kv_bytes_peak, session.kv_bytes_max);
  EXPECT_LE(stats.prefix_bytes, session.prefix_bytes_max);
  EXPECT_EQ(stats.kv_bytes_used, stats.prefix_bytes);  // only the prefix cache holds blocks
  EXPECT_EQ(stats.groups[0].blocks_private, 0);
  // Nothing is left of the requests that were under way at the thousandth.
  EXPECT_LE(mallinfo2().uordblks, allocated.load() + (size_t{1} << 20));
  ExpectOk(runner->Check());
}

// ---- Prefixes that are being computed -----------------------------------------------------------

// Requests that begin alike compute what they share once, though all come at the same time.
TEST(Serving, ANewPrefixIsComputedOnce) {
  constexpr int64_t kShared = 2000;
  constexpr int64_t kRest = 40;
  constexpr size_t kClients = 8;
  TinyShape shape;
  shape.context = 2200;
  const auto model = OpenTiny(shape, OwnGemm());
  SessionOptions session = ServedBy(KvType::kF16, 2, kClients + 1);
  session.prefix_cache = true;
  auto runner = OpenRunner(model, session);
  const std::vector<TokenId> shared = RandomTokens(kShared, 1);
  Scheduler scheduler(*runner, {.prompt_slice = 256});
  std::deque<TextRequest> texts;
  const auto submit = [&](uint32_t number) {
    Order order{.prompt = shared, .sampling = {}, .max_tokens = 4};
    const std::vector<TokenId> rest = RandomTokens(kRest, 50 + number);
    order.prompt.insert(order.prompt.end(), rest.begin(), rest.end());
    scheduler.Submit(texts.emplace_back(SetupOf(model, order)));
  };
  for (uint32_t i = 0; i < kClients; ++i) submit(i);
  ExpectOk(scheduler.Drain());
  const int64_t decoded = static_cast<int64_t>(kClients) * 3;
  EXPECT_LE(static_cast<int64_t>(runner->stats().tokens_processed),
            kShared + static_cast<int64_t>(kClients) * kRest + 64 * 8 + decoded);
  const SchedulerCounters before = scheduler.counters();
  EXPECT_EQ(before.tokens_generated, static_cast<uint64_t>(decoded));
  submit(kClients);
  ExpectOk(scheduler.Drain());
  EXPECT_GE(scheduler.counters().tokens_reused - before.tokens_reused, 1984u);
  for (const TextRequest& text : texts) EXPECT_EQ(text.generation().ids.size(), 4u);
}

// Where the request that computes the common beginning leaves, another one does.
TEST(Serving, APrefixThatIsGivenUpIsComputedByTheNext) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = ServedBy(KvType::kF16, 1, 3);
  session.prefix_cache = true;
  auto runner = OpenRunner(model, session);
  const Order order{.prompt = RandomTokens(400, 1), .sampling = {}, .max_tokens = 4};
  TextRequest first(SetupOf(model, order));
  TextRequest second(SetupOf(model, order));
  Scheduler scheduler(*runner, {.prompt_slice = 64});
  scheduler.Submit(first);
  scheduler.Submit(second);
  ExpectOk(scheduler.Poll());
  ExpectOk(scheduler.Poll());
  EXPECT_EQ(runner->stats().sequences, 1);  // the second one waits
  ExpectOk(scheduler.Cancel(first));
  ExpectOk(scheduler.Drain());
  EXPECT_EQ(second.generation().ids.size(), 4u);
  EXPECT_LE(runner->stats().tokens_processed, 400u + 64 + 4);
}

TEST(Serving, ADeadlineEndsARequestWhereverItIs) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, ServedBy(KvType::kF16, 1, 1));
  double now = 5;
  Scheduler scheduler(*runner, {.clock = [&] { return now += 0.001; }});
  const Order order{.prompt = RandomTokens(5, 1), .sampling = {}, .max_tokens = 400};
  TextRequest running(SetupOf(model, order));
  TextRequest waiting(SetupOf(model, order));
  TextRequest patient(SetupOf(model, {.prompt = {1, 2}, .sampling = {}, .max_tokens = 3}));
  scheduler.Submit(running, {.seconds_max = 10});
  scheduler.Submit(waiting, {.seconds_max = 9});
  scheduler.Submit(patient, {.seconds_max = 100});
  for (int i = 0; i < 6; ++i) ExpectOk(scheduler.Poll());
  now += 11;
  ExpectOk(scheduler.Drain({.ends_on_failure = false}));
  ExpectOk(running.status());
  EXPECT_EQ(running.generation().finish_reason, FinishReason::kDeadline);
  EXPECT_GE(running.generation().ids.size(), 5u);
  EXPECT_TRUE(waiting.status().Is(ErrorCode::kDeadline));
  EXPECT_EQ(patient.generation().ids.size(), 3u);
  EXPECT_EQ(runner->stats().sequences, 0);
}

// ---- Log-probabilities --------------------------------------------------------------------------

// They are those of the model's logits, which a session gives for the same tokens.
TEST(LogProbabilities, AreThoseOfTheModel) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, ServedBy(KvType::kF16, 1, 1));
  Order order{.prompt = RandomTokens(20, 3), .sampling = {}, .max_tokens = 12};
  order.sampling.temperature = 1.5f;
  order.sampling.repeat_penalty = 1.7f;
  order.sampling.seed = 4;
  TextRequest::Setup setup = SetupOf(model, order);
  setup.options.log_probs = 3;
  std::vector<TokenId> told;
  setup.on_token = [&](TokenId id, const TokenLogProbs* log_probs) {
    ASSERT_NE(log_probs, nullptr);
    EXPECT_EQ(log_probs->chosen.id, id);
    told.push_back(id);
  };
  TextRequest text(std::move(setup));
  Scheduler scheduler(*runner, {});
  scheduler.Submit(text);
  ExpectOk(scheduler.Drain());
  const Generation& made = text.generation();
  ASSERT_EQ(made.log_probs.size(), 12u);
  EXPECT_EQ(told, made.ids);
  std::vector<TokenId> all = order.prompt;
  for (size_t i = 0; i < made.ids.size(); ++i) {
    const std::vector<float> logits = LogitsAlone(model, KvType::kF16, all);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    std::vector<TokenId> ranked(logits.size());
    for (size_t id = 0; id < ranked.size(); ++id) ranked[id] = static_cast<TokenId>(id);
    std::stable_sort(ranked.begin(), ranked.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const auto expected = [&](TokenId id) {
      return static_cast<double>(logits[static_cast<size_t>(id)]) - std::log(sum);
    };
    EXPECT_NEAR(static_cast<double>(made.log_probs[i].chosen.log_prob), expected(made.ids[i]),
                1e-5);
    ASSERT_EQ(made.log_probs[i].top.size(), 3u);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(made.log_probs[i].top[rank].id, ranked[rank]);
      EXPECT_NEAR(static_cast<double>(made.log_probs[i].top[rank].log_prob), expected(ranked[rank]),
                  1e-5);
    }
    all.push_back(made.ids[i]);
  }
}

// Log-probabilities of a prompt are what the score of a text is, in slices and after a prefix was
// kept, and leave the text as it is.
TEST(LogProbabilities, OfThePromptAreItsScores) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = ServedBy(KvType::kF16, 1, 2);
  session.prefix_cache = true;
  auto runner = OpenRunner(model, session);
  Order order{.prompt = RandomTokens(150, 3), .sampling = {}, .max_tokens = 6};
  order.sampling.temperature = 0;
  const auto alone = Session::Create(model, ServedBy(KvType::kF16, 1, 1));
  ASSERT_TRUE(alone.ok());
  const auto scores = evaluate::ScoreTokens(**alone, order.prompt, 2);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  std::vector<TokenId> first;
  for (const int64_t slice : {0, 0, 64}) {
    TextRequest::Setup setup = SetupOf(model, order);
    setup.options.prompt_log_probs = 2;
    TextRequest text(std::move(setup));
    Scheduler scheduler(*runner, {.prompt_slice = slice});
    scheduler.Submit(text);
    ExpectOk(scheduler.Drain());
    const std::vector<TokenLogProbs>& found = text.generation().prompt_log_probs;
    ASSERT_EQ(found.size(), scores->size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].chosen.id, order.prompt[i + 1]);
      EXPECT_NEAR(static_cast<double>(found[i].chosen.log_prob), (*scores)[i].log_prob, 1e-6);
      ASSERT_EQ(found[i].top.size(), 2u);
      EXPECT_EQ(found[i].top[0].id, (*scores)[i].top[0].id);
    }
    EXPECT_EQ(text.reused_tokens(), 0);
    if (first.empty()) first = text.generation().ids;
    EXPECT_EQ(text.generation().ids, first);
  }
}

// A request that wants no known prefix gets none, not even in its first step.
TEST(Serving, AKnownPrefixIsLeftAloneOnDemand) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = ServedBy(KvType::kF16, 1, 2);
  session.prefix_cache = true;
  auto runner = OpenRunner(model, session);
  Scheduler scheduler(*runner, {});
  const Order order{.prompt = RandomTokens(100, 3), .sampling = {}, .max_tokens = 2};
  for (const auto& [reuses, expected] :
       std::vector<std::pair<bool, int64_t>>{{true, 0}, {false, 0}, {true, 96}}) {
    TextRequest text(SetupOf(model, order));
    const uint64_t before = runner->stats().tokens_reused;
    scheduler.Submit(text, {.reuses_prefix = reuses});
    ExpectOk(scheduler.Drain());
    EXPECT_EQ(text.reused_tokens(), expected);
    EXPECT_EQ(runner->stats().tokens_reused - before, static_cast<uint64_t>(expected));
  }
}

// Several requests at once are taken or refused together.
TEST(Serving, RequestsThatComeTogetherStayTogether) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, ServedBy(KvType::kF16, 1, 4));
  Scheduler scheduler(*runner, {.requests_max = 4, .queue_max = 2});
  const Order order{.prompt = RandomTokens(10, 3), .sampling = {}, .max_tokens = 2};
  const auto input = std::make_shared<TextInput>(TextInput{order.prompt});
  const auto some = [&](size_t count) {
    std::vector<std::shared_ptr<Request>> out;
    for (size_t i = 0; i < count; ++i) {
      TextRequest::Setup setup = SetupOf(model, order);
      setup.input = input;
      out.push_back(std::make_shared<TextRequest>(std::move(setup)));
    }
    return out;
  };
  const auto first = some(4);
  ExpectOk(scheduler.Submit(first, {}));
  const auto refused = some(1);
  EXPECT_TRUE(scheduler.Submit(refused, {}).Is(ErrorCode::kBusy));
  EXPECT_EQ(refused[0]->state(), Request::State::kNew);
  ExpectOk(scheduler.Drain());
  // One prompt for all: the tokens of a family are processed once.
  EXPECT_EQ(scheduler.counters().tokens_prefilled, 10u);
  for (const auto& one : first) EXPECT_TRUE(one->status().ok());
  ExpectOk(scheduler.Submit(refused, {}));
  ExpectOk(scheduler.Drain());
}

}  // namespace
}  // namespace kvant::test
