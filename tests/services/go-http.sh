# A server in Go.
service=("$place/server" "$port")
packages="curl golang-go"
prepare() {
    cat >server.go <<'GO'
package main

import ("crypto/sha256"; "fmt"; "net/http"; "os")

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%x\n", sha256.Sum256([]byte(r.URL.Path))) })
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
GO
    GOCACHE=$place/../../go-cache HOME=$place GO111MODULE=off go build -o server server.go
}
expected=143
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | sort | uniq -c; }
