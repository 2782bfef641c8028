# uWSGI: a master, two workers, Python.
packages="uwsgi-core uwsgi-plugin-python3 curl"
prepare() { printf 'def application(env, start):\n    start("200 OK", [])\n    return [("hello " + env["PATH_INFO"] + "\\n").encode()]\n' >app.py; }
service=(uwsgi --plugins http,python3 --http-socket "127.0.0.1:$port" --wsgi-file "$place/app.py" --master --processes 2 --die-on-term)
expected=0
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | sort | uniq -c; }
