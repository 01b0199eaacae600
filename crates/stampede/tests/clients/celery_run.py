"""Celery: a real worker process over SQS does tasks, and ends what it does when told to stop."""

import os
import signal
import subprocess
import sys
import tempfile
import time

ENDPOINT, KEY = sys.argv[1], sys.argv[2]
FOLDER = tempfile.mkdtemp(dir=sys.argv[3])
RESULTS = os.path.join(FOLDER, "results")
os.environ.update(SQS_ENDPOINT=ENDPOINT, SQS_KEY=KEY, RESULTS=RESULTS)
# Nothing of the account of whoever runs this.
os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)

from celery_app import add, slow  # noqa: E402  (reads the environment)


def results():
    try:
        with open(RESULTS) as file:
            return sorted(file.read().splitlines())
    except FileNotFoundError:
        return []


def until(what, found):
    deadline = time.monotonic() + 60
    while not found():
        assert worker.poll() is None, f"the worker ended with {worker.returncode}"
        assert time.monotonic() < deadline, f"{what}; so far {results()}"
        time.sleep(0.05)


for n in range(10):
    add.delay(n, n + 1)
worker = subprocess.Popen(
    [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", "2",
     "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"],
    cwd=os.path.dirname(os.path.abspath(__file__)),
)
try:
    expected = sorted([f"{n} + {n + 1} = {2 * n + 1}" for n in range(10)] + ["3 + 4 failed"])
    until("ten tasks and a retry", lambda: len(results()) >= len(expected))
    assert results() == expected, results()
    slow.delay()
    until("a slow task begins", lambda: "slow began" in results())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.returncode
    assert "slow ended" in results(), "a task that runs is ended before the worker"
finally:
    worker.kill()
    worker.wait()

import suite  # noqa: E402

url = suite.sqs.get_queue_url(QueueName="celery-test-work")["QueueUrl"]
shown = suite.attributes(url)
left = {name: n for name, n in shown.items() if name.startswith("ApproximateNumber") and n != "0"}
assert not left, f"all is acknowledged, but there are {left}"
print("ok")
