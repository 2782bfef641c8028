// Threads as C++'s library has them: async and futures, promises with exceptions, mutexes, condition variables, atomics,
// call_once, thread_local objects with destructors.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> destroyed{0};

struct Counted {
    int value = 0;
    ~Counted() { destroyed += value; }
};

static thread_local Counted counted;

class Pool {
  public:
    explicit Pool(int size) {
        for (int n = 0; n < size; n++) workers.emplace_back([this] { work(); });
    }

    ~Pool() {
        {
            std::lock_guard guard(lock);
            closed = true;
        }
        changed.notify_all();
        for (auto &worker : workers) worker.join();
    }

    template <class F> auto run(F task) {
        auto packaged = std::make_shared<std::packaged_task<decltype(task())()>>(task);
        {
            std::lock_guard guard(lock);
            tasks.emplace_back([packaged] { (*packaged)(); });
        }
        changed.notify_one();
        return packaged->get_future();
    }

  private:
    void work() {
        counted.value = 1;
        for (;;) {
            std::function<void()> task;
            {
                std::unique_lock guard(lock);
                changed.wait(guard, [this] { return closed || !tasks.empty(); });
                if (tasks.empty()) return;
                task = std::move(tasks.front());
                tasks.pop_front();
            }
            task();
        }
    }

    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    std::vector<std::thread> workers;
    bool closed = false;
};

static long fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

int main() {
    {
        Pool pool(3);
        std::vector<std::future<long>> results;
        for (int n = 0; n < 20; n++) results.push_back(pool.run([n] { return fibonacci(n); }));
        long sum = 0;
        for (auto &result : results) sum += result.get();
        std::cout << "pool " << sum << '\n';
        auto failing = pool.run([]() -> int { throw std::runtime_error("thrown in a thread"); });
        try {
            failing.get();
        } catch (const std::exception &error) {
            std::cout << error.what() << '\n';
        }
    }
    std::cout << "destroyed " << destroyed << '\n';

    auto half = std::async(std::launch::async, [] {
        std::vector<int> values(1000);
        std::iota(values.begin(), values.end(), 1);
        return std::accumulate(values.begin(), values.end(), 0L);
    });
    std::cout << "async " << half.get() << '\n';

    std::promise<std::string> promise;
    auto future = promise.get_future();
    std::cout << "early " << (future.wait_for(std::chrono::milliseconds(3)) == std::future_status::timeout) << '\n';
    std::thread keeper([&promise] { promise.set_value("kept"); });
    std::cout << future.get() << '\n';
    keeper.join();

    std::once_flag once;
    std::atomic<int> runs{0};
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; n++) threads.emplace_back([&] { std::call_once(once, [&] { runs++; }); });
    for (auto &thread : threads) thread.join();
    std::cout << "once " << runs << '\n';
}
