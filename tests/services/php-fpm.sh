# php-fpm with two workers; asked over FastCGI by a few lines of Python.
packages="php-fpm python3"
prepare() {
    echo '<?php echo "answer ", strlen($_SERVER["QUERY_STRING"]), "\n";' >a.php
    printf '[global]\nerror_log = %s/log\n[www]\nuser = root\ngroup = root\nlisten = 127.0.0.1:%s\npm = static\npm.max_children = 2\n' "$place" "$port" >conf
    cat >ask.py <<'PY'
import socket, struct, sys
def pair(k, v): return bytes([len(k), len(v)]) + k + v
def record(kind, body): return struct.pack(">BBHHBB", 1, kind, 1, len(body), 0, 0) + body
for n in range(10):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    env = {b"SCRIPT_FILENAME": sys.argv[2].encode(), b"REQUEST_METHOD": b"GET", b"QUERY_STRING": b"x" * n}
    s.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, b"".join(pair(k, v) for k, v in env.items())) + record(4, b"") + record(5, b""))
    answer = b""
    while part := s.recv(4096): answer += part
    print([line for line in answer.split(b"\n") if b"answer" in line])
PY
}
service=(sh -c "exec php-fpm8.2 -F -R -y $place/conf")
load() { python3 ask.py "$port" "$place/a.php"; }
stop() { kill -QUIT "$pid"; }
