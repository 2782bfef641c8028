# memcached with four threads.
packages="memcached libmemcached-tools"
is_quick=1
service=(memcached -p "$port" -l 127.0.0.1 -U 0 -t 4 -u root)
load() {
    printf 'set a 0 0 5\r\nhello\r\nget a\r\nincr n 1\r\nset n 0 0 1\r\n5\r\nincr n 7\r\ndelete a\r\nget a\r\nquit\r\n' | busy
    memcslap --servers="127.0.0.1:$port" --concurrency=4 --execute-number=200 --test=set >/dev/null && echo loaded
    memcslap --servers="127.0.0.1:$port" --concurrency=4 --execute-number=200 --test=get >/dev/null && echo loaded
}
busy() { exec 3<>"/dev/tcp/127.0.0.1/$port"; cat >&3; timeout 5 cat <&3; exec 3>&-; }
