# python3's multiprocessing: a pool, queues, locks, shared values, a manager, an error of a child; by fork and by spawn.
import multiprocessing


def square(n):
    return n * n


def failing(n):
    raise ValueError(f"not {n}")


def add(total, lock, rounds):
    for _ in range(rounds):
        with lock:
            total.value += 1


def relay(source, sink):
    while (item := source.get()) is not None:
        sink.put(item * 2)
    sink.put(None)


def main():
    for method in ["fork", "spawn"]:
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            print(method, pool.map(square, range(10)), sum(pool.imap_unordered(square, range(50))))
            try:
                pool.apply(failing, (5,))
            except ValueError as error:
                print("failed:", error)
    context = multiprocessing.get_context("fork")
    total, lock = context.Value("i", 0, lock=False), context.Lock()
    workers = [context.Process(target=add, args=(total, lock, 50)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("total", total.value, [worker.exitcode for worker in workers])
    source, sink = context.Queue(), context.Queue()
    relaying = context.Process(target=relay, args=(source, sink))
    relaying.start()
    for item in [1, 2, 3, None]:
        source.put(item)
    print(list(iter(sink.get, None)))
    relaying.join()
    with context.Manager() as manager:
        shared = manager.dict()
        shared["key"] = [1, 2]
        print(dict(shared))


if __name__ == "__main__":
    main()
