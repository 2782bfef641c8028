# sshd -d: one login, one command.
packages="openssh-server openssh-client"
prepare() {
    mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f key
    cp key.pub authorized
    printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nUsePAM no\nPidFile none\n' "$port" "$place" "$place" >conf
}
service=(/usr/sbin/sshd -d -e -f "$place/conf")
expected=255
ready() { ss -ltn "sport = :$port" | grep -q LISTEN; }
load() {
    ssh -q -F none -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -p "$port" "$(id -un)@127.0.0.1" 'echo logged in; tty; seq 2000 | cksum'
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
}
stop() { :; }
