# Ruby's webrick.
packages="ruby ruby-webrick curl"
prepare() {
    cat >server.rb <<'RB'
require 'webrick'
s = WEBrick::HTTPServer.new(Port: ARGV[0].to_i, BindAddress: '127.0.0.1', AccessLog: [], Logger: WEBrick::Log.new(File::NULL))
s.mount_proc('/') { |request, response| response.body = request.path.reverse + "\n" }
trap('TERM') { s.shutdown }
s.start
RB
}
service=(ruby "$place/server.rb" "$port")
load() { for n in $(seq 20); do get "/$n"; done; for n in $(seq 8); do get / & done | sort | uniq -c; }
