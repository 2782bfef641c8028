# OpenLDAP: a directory in LMDB, which is a file that is mapped shared.
packages="slapd ldap-utils"
prepare() {
    mkdir -p data
    cat >conf <<CONF
include /etc/ldap/schema/core.schema
pidfile $place/pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
maxsize 104857600
suffix "dc=test"
rootdn "cn=admin,dc=test"
rootpw secret
directory $place/data
CONF
    {
        printf 'dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\ndc: test\no: test\n\n'
        for n in $(seq 40); do printf 'dn: cn=p%s,dc=test\nobjectClass: person\ncn: p%s\nsn: s%s\n\n' "$n" "$n" "$n"; done
    } >entries
}
service=(slapd -d 0 -f "$place/conf" -h "ldap://127.0.0.1:$port")
ask() { "$1" -x -H "ldap://127.0.0.1:$port" -D cn=admin,dc=test -w secret "${@:2}"; }
load() {
    ask ldapadd -f entries | grep -c adding
    for n in 3 30; do ask ldapsearch -LLL -b dc=test "(sn=s$n)" sn; done
    ask ldapdelete cn=p5,dc=test
    ask ldapsearch -LLL -b dc=test '(objectClass=person)' dn | grep -c dn:
}
