# gunicorn with two workers.
packages="gunicorn curl"
prepare() { printf 'def app(e, start):\n    start("200 OK", [("Content-Type", "text/plain")])\n    return [e["PATH_INFO"].encode() * 3]\n' >web.py; }
service=(gunicorn -w 2 -b "127.0.0.1:$port" web:app)
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | wc -c; }
