# hg serve, in Python.
packages="mercurial curl"
prepare() { hg init repo && cd repo && echo a >a && hg add a && hg commit -u me -m one; }
service=(hg serve -R "$place/repo" -a 127.0.0.1 -p "$port")
expected=255
load() { get '/raw-file/tip/a'; hg clone -q "http://127.0.0.1:$port/" clone && hg -R clone log --template '{desc}\n'; }
