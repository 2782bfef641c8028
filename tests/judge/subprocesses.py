# Programs started by python3: pipes both ways, exit codes, time-outs, signals, a shell, threads that wait for them.
import concurrent.futures
import os
import signal
import subprocess
import sys

print(subprocess.run(["tr", "a-z", "A-Z"], input=b"text", capture_output=True, check=True).stdout)
print(subprocess.run(["sh", "-c", "exit 7"]).returncode)
print(subprocess.check_output("seq 5 | paste -sd+ | sed 's/$/=15/'", shell=True, text=True).strip())
first = subprocess.Popen(["seq", "1000"], stdout=subprocess.PIPE)
second = subprocess.Popen(["grep", "-c", "7"], stdin=first.stdout, stdout=subprocess.PIPE)
first.stdout.close()
print(second.communicate()[0], first.wait(), second.returncode)
try:
    subprocess.run(["sleep", "100"], timeout=0.1)
except subprocess.TimeoutExpired:
    print("timed out")
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
child.send_signal(signal.SIGTERM)
print("ended by", -child.wait())
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    runs = pool.map(lambda n: subprocess.run(["expr", str(n), "*", str(n)], capture_output=True).stdout, range(1, 9))
    print([int(run) for run in runs])
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(read)
    os.write(write, b"from the child")
    os._exit(3)
os.close(write)
print(os.read(read, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
