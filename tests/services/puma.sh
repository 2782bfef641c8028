# puma: a cluster of two Ruby processes with threads.
packages="puma curl"
prepare() { printf 'run lambda { |env| [200, {"content-type" => "text/plain"}, ["hello #{env["PATH_INFO"]}\\n"]] }\n' >config.ru; }
service=(puma -w 2 -t 2:4 -b "tcp://127.0.0.1:$port" -e production "$place/config.ru")
expected=143
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | sort | uniq -c; }
