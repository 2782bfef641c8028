# xinetd: a process for each connection.
packages="xinetd netcat-openbsd"
prepare() {
    cat >conf <<CONF
service echo
{
 type = INTERNAL UNLISTED
 id = echo-stream
 socket_type = stream
 protocol = tcp
 user = root
 wait = no
 port = $port
 bind = 127.0.0.1
}
service sort
{
 type = UNLISTED
 socket_type = stream
 protocol = tcp
 user = nobody
 wait = no
 port = $((port + 10000))
 bind = 127.0.0.1
 server = /usr/bin/sort
}
CONF
}
service=(xinetd -dontfork -f "$place/conf" -pidfile "$place/pid" -filelog "$place/log")
load() {
    for n in 1 2 3; do echo "line $n" | nc -q1 127.0.0.1 "$port"; done
    for n in 1 2 3; do printf 'c\nb\na%s\n' "$n" | nc -N 127.0.0.1 $((port + 10000)); done
}
