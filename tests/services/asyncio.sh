# Python's asyncio: an echo server.
packages="python3 curl"
is_quick=1
prepare() {
    cat >server.py <<'PY'
import asyncio, sys, signal
async def serve(reader, writer):
    while line := await reader.readline():
        await asyncio.sleep(0.001)
        writer.write(line.upper())
        await writer.drain()
    writer.close()
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    async with server:
        await stop.wait()
asyncio.run(main())
PY
    cat >client.py <<'PY'
import asyncio, sys
async def ask(n):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    for i in range(5):
        writer.write(b"hello %d %d\n" % (n, i))
        assert await reader.readline() == b"HELLO %d %d\n" % (n, i)
    writer.close()
async def main():
    await asyncio.gather(*(ask(n) for n in range(20)))
    print("all answered")
asyncio.run(main())
PY
}
service=(python3 "$place/server.py" "$port")
load() { python3 client.py "$port"; }
