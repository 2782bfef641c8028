# gearmand: threads and events.
packages="gearman-job-server"
service=(gearmand -L 127.0.0.1 -p "$port" -l stderr)
load() { exec 3<>"/dev/tcp/127.0.0.1/$port"; for n in 1 2 3; do echo version >&3; read -r line <&3; echo "$line"; done; }
