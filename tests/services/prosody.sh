# Prosody: XMPP in Lua.
packages="prosody netcat-openbsd"
prepare() {
    mkdir -p data
    cat >conf.lua <<CONF
daemonize = false
run_as_root = true
data_path = "$place/data"
pidfile = "$place/pid"
interfaces = { "127.0.0.1" }
c2s_ports = { $port }
s2s_ports = { }
modules_disabled = { "s2s", "tls" }
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
VirtualHost "localhost"
CONF
}
service=(prosody -F --config "$place/conf.lua")
hello() { echo "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>"; sleep 0.5; }
load() { for n in 1 2; do hello | timeout 20 nc -q4 127.0.0.1 "$port" | grep -o -e 'mechanism>[A-Z0-9-]*' -e "from='localhost'"; done; }
