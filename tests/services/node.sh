# node's http server.
service=("$(command -v node || echo node)" "$place/server.js" "$port")
packages="curl"
prepare() {
    cat >server.js <<'JS'
const http = require('http'), crypto = require('crypto');
const server = http.createServer((request, response) => {
  crypto.pbkdf2(request.url, 'salt', 10, 16, 'sha256', (_, key) => response.end(key.toString('hex') + '\n'));
});
process.on('SIGTERM', () => { server.close(); server.closeAllConnections(); });
server.listen(Number(process.argv[2]), '127.0.0.1');
JS
}
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | sort | uniq -c; }
