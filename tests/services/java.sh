# The JDK's own http server, from a source file.
packages="curl"
prepare() {
    cat >Server.java <<'J'
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Server {
    public static void main(String[] a) throws Exception {
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(a[0])), 0);
        s.createContext("/", e -> { byte[] b = (e.getRequestURI().getPath().hashCode() + "\n").getBytes(); e.sendResponseHeaders(200, b.length); e.getResponseBody().write(b); e.close(); });
        s.start();
    }
}
J
    javac Server.java
}
service=("$(command -v java || echo java)" -Xmx128m -XX:+UseSerialGC -cp "$place" Server "$port")
expected=143
load() { for n in $(seq 10); do get "/$n"; done; for n in $(seq 4); do get / & done | sort | uniq -c; }
