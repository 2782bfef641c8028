# ProFTPD: a process for each client, which gives its rights up.
packages="proftpd-core curl"
prepare() {
    mkdir -m 777 ftp
    for n in 1 2 3; do echo "file $n" >"ftp/f$n"; done
    head -c 500000 /dev/zero >ftp/big
    chmod a+rx "$place" "$place/.." "$place/../.."
    cat >conf <<CONF
ServerName x
ServerType standalone
Port $port
DefaultAddress 127.0.0.1
SocketBindTight on
UseIPv6 off
PidFile $place/pid
ScoreboardFile $place/score
SystemLog none
WtmpLog off
User nobody
Group nogroup
DelayEngine off
<Anonymous $place/ftp>
  User nobody
  Group nogroup
  UserAlias anonymous nobody
  RequireValidShell off
</Anonymous>
CONF
}
service=(proftpd -n -c "$place/conf")
ftp() { curl -s --max-time 20 "ftp://127.0.0.1:$port$1" "${@:2}"; }
load() {
    for n in 1 2 3; do ftp "/f$n"; done
    ftp / | awk '{ print $5, $9 }' | sort
    ftp /big | md5sum
    ftp /none || echo "$?"
    ftp /up -T conf
    cmp conf ftp/up && echo uploaded
    for n in 1 2 3 4; do ftp /f1 & done
    wait
}
