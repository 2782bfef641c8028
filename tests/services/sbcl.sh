# SBCL: native code, a collector that protects pages.
packages="sbcl"
prepare() {
    cat >server.lisp <<LISP
(require :sb-bsd-sockets)
(let ((s (make-instance 'sb-bsd-sockets:inet-socket :type :stream :protocol :tcp)))
  (setf (sb-bsd-sockets:sockopt-reuse-address s) t)
  (sb-bsd-sockets:socket-bind s #(127 0 0 1) $port)
  (sb-bsd-sockets:socket-listen s 5)
  (loop repeat 21 do
    (let* ((c (sb-bsd-sockets:socket-accept s))
           (stream (sb-bsd-sockets:socket-make-stream c :input t :output t)))
      (let ((line (read-line stream nil "")))
        (format stream "~a ~a~%" (length line) (length (loop for i below 200000 collect i))))
      (finish-output stream) (close stream))))
(sb-ext:gc :full t)
LISP
}
service=(sbcl --script "$place/server.lisp")
load() { for n in $(seq 20); do exec 3<>"/dev/tcp/127.0.0.1/$port"; echo "line $n" >&3; cat <&3; exec 3>&-; done; }
stop() { :; }
