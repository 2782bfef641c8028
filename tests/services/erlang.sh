# The Erlang VM: schedulers in threads, a small HTTP server.
packages="erlang-base erlang-inets curl"
prepare() {
    mkdir -p www && echo hello >www/index.html
    printf '#!/usr/bin/env escript\nmain(_) -> application:ensure_all_started(inets), {ok, _} = inets:start(httpd, [{port, %s}, {bind_address, {127,0,0,1}}, {server_name, "x"}, {server_root, "%s"}, {document_root, "%s/www"}]), receive stop -> ok end.\n' "$port" "$place" "$place" >server.erl
}
# It listens before it can answer: who comes between is told of an internal error, natively too.
ready() { [ "$(get /index.html)" = hello ]; }
service=(escript "$place/server.erl")
load() { for n in $(seq 10); do get /index.html; done | uniq -c; }
