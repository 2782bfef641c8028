# ngIRCd: an IRC session.
packages="ngircd"
prepare() { printf '[Global]\nName = irc.test.net\nInfo = test\nListen = 127.0.0.1\nPorts = %s\n[Options]\nDNS = no\nIdent = no\nPAM = no\n' "$port" >conf; }
service=(ngircd -n -f "$place/conf")
load() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'NICK a\r\nUSER a 0 * :a\r\nJOIN #x\r\nPRIVMSG a :hello\r\nQUIT\r\n' >&3
    grep -ao 'PRIVMSG a :hello\|JOIN :#x' <&3
}
