# uvicorn: an ASGI server on asyncio.
packages="python3-uvicorn curl"
prepare() {
    cat >web.py <<'PY'
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode() * 3})
PY
}
service=(python3 -m uvicorn --port "$port" --lifespan off web:app)
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | wc -c; }
