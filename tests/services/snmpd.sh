# Net-SNMP's agent.
packages="snmpd snmp"
prepare() { printf 'rocommunity public 127.0.0.1\nsysLocation here\n' >conf; }
service=(snmpd -f -Lo -C -c "$place/conf" -p "$place/pid" "127.0.0.1:$port")
ready() { [ -n "$(snmpget -v2c -c public -Oqv "127.0.0.1:$port" 1.3.6.1.2.1.1.6.0)" ]; }
load() { for n in $(seq 10); do snmpget -v2c -c public -Oqv "127.0.0.1:$port" 1.3.6.1.2.1.1.6.0; done | uniq -c; snmpwalk -v2c -c public "127.0.0.1:$port" 1.3.6.1.2.1.1 | wc -l; }
