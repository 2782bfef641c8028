# Radicale: a calendar in Python, with threads and files.
packages="radicale curl"
prepare() { printf '[server]\nhosts = 127.0.0.1:%s\n[auth]\ntype = none\n[rights]\ntype = authenticated\n[storage]\nfilesystem_folder = %s/data\n' "$port" "$place" >conf; }
service=(radicale --config "$place/conf")
event() { printf 'BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:e%s\r\nDTSTART:20260101T000000Z\r\nDTSTAMP:20260101T000000Z\r\nSUMMARY:event %s\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n' "$1" "$1"; }
load() {
    get /a/c/ -u a:b -X MKCALENDAR -w '%{http_code}\n'
    for n in 1 2 3 4 5; do event "$n" | get "/a/c/$n.ics" -u a:b -T - -H 'Content-Type: text/calendar' -w '%{http_code}\n'; done
    get /a/c/ -u a:b -X PROPFIND -H 'Depth: 1' | grep -o 'c/[0-9].ics' | sort -u
    get /a/c/2.ics -u a:b -X DELETE -o /dev/null -w '%{http_code}\n'
    get /a/c/3.ics -u a:b | grep SUMMARY
}
