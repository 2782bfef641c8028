# supervisord: starts, watches and restarts others.
packages="supervisor python3 curl"
prepare() {
    printf '[supervisord]\nnodaemon=true\nlogfile=%s/log\npidfile=%s/pid\n[program:web]\ncommand=python3 -m http.server %s --bind 127.0.0.1 --directory %s/www\nautorestart=true\nstartsecs=0\n[unix_http_server]\nfile=%s/sock\n[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n[supervisorctl]\nserverurl=unix://%s/sock\n' \
        "$place" "$place" "$port" "$place" "$place" "$place" >conf
    mkdir -p www && echo hello >www/index.html
}
service=(supervisord -c "$place/conf")
load() { get /; supervisorctl -c conf restart web | tail -n 1; for n in $(seq 50); do answers "$port" && break; sleep 0.2; done; get /; }
