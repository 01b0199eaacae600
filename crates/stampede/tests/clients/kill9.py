"""Clients while the server is killed and started again: what was answered holds.

Run as `python kill9.py ENDPOINT KEY`. Writes a line each time that some messages more were deleted:
then whoever runs it kills the server and starts it again, as often as they like. On a line of its
standard input the producers stop, and the consumers take what is left; then it adds up.

- A message whose SendMessage was answered is received until it is deleted; none is lost.
- A message whose DeleteMessage was answered is not received by a request that began after it.
"""

import random
import sys
import threading
import time

import suite
from botocore.exceptions import BotoCoreError, ClientError

PRODUCERS, CONSUMERS = 2, 3
VISIBILITY_SECONDS = 3
# Deletes between two lines.
STEP = 100

lock = threading.Lock()
# Messages by what was done with them; `tried` and `deleting` know of no answer.
tried, sent, received, deleting, deleted, wrong = set(), set(), set(), set(), {}, []
refusals = {}
producing, consuming = threading.Event(), threading.Event()
producing.set()
consuming.set()
url = suite.queue("kill9", VisibilityTimeout=str(VISIBILITY_SECONDS))


def attempt(call, **arguments):
    """The answer, or None when there was none: the server may be dead."""
    try:
        return call(**arguments)
    except (BotoCoreError, ClientError) as error:
        name = type(error).__name__
        if isinstance(error, ClientError):
            name = error.response["Error"]["Code"]
        with lock:
            refusals[name] = refusals.get(name, 0) + 1
        time.sleep(0.05)
        return None


def produce(number):
    sqs, n = suite.client(), 0
    while producing.is_set():
        size = random.choice((1, 1, 5))
        names = [f"{number}-{n + i}" for i in range(size)]
        n += size
        with lock:
            tried.update(names)
        if size == 1:
            answer = attempt(sqs.send_message, QueueUrl=url, MessageBody=names[0])
            good = names if answer else []
        else:
            entries = [{"Id": str(i), "MessageBody": name} for i, name in enumerate(names)]
            answer = attempt(sqs.send_message_batch, QueueUrl=url, Entries=entries)
            good = [names[int(entry["Id"])] for entry in (answer or {}).get("Successful", [])]
        with lock:
            sent.update(good)


def consume():
    sqs = suite.client()
    while consuming.is_set():
        began = time.monotonic()
        answer = attempt(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        messages = (answer or {}).get("Messages", [])
        with lock:
            for message in messages:
                body = message["Body"]
                received.add(body)
                if body not in tried:
                    wrong.append(f"{body} was never sent")
                if deleted.get(body, began) < began:
                    wrong.append(f"{body} was received after it was deleted")
        for message in messages:
            if random.random() < 0.1:
                continue  # A consumer that forgets: it comes again.
            handle = message["ReceiptHandle"]
            with lock:
                deleting.add(message["Body"])
            if attempt(sqs.delete_message, QueueUrl=url, ReceiptHandle=handle) is None:
                continue
            # A handle of a lease that had ended is answered too, and deletes nothing: only what
            # was deleted well within its lease counts.
            now = time.monotonic()
            if now - began < VISIBILITY_SECONDS * 0.7:
                with lock:
                    deleted.setdefault(message["Body"], now)
                    if producing.is_set() and len(deleted) % STEP == 0:
                        print(f"done {len(deleted)}", flush=True)


def counts():
    shown = None
    while shown is None:
        shown = attempt(suite.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"])
    names = ("", "NotVisible", "Delayed")
    return [int(shown["Attributes"][f"ApproximateNumberOfMessages{name}"]) for name in names]


producers = [threading.Thread(target=produce, args=(n,)) for n in range(PRODUCERS)]
consumers = [threading.Thread(target=consume) for _ in range(CONSUMERS)]
for thread in producers + consumers:
    thread.start()
sys.stdin.readline()
producing.clear()
for thread in producers:
    thread.join()
deadline = time.monotonic() + 60
while any(counts()) and time.monotonic() < deadline:
    time.sleep(0.2)
consuming.clear()
for thread in consumers:
    thread.join()
left = counts()
print(f"{len(tried)} tried, {len(sent)} sent, {len(received)} received, {len(deleted)} deleted, "
      f"{sum(left)} left; not answered: {refusals}")
assert not wrong, wrong[:10]
assert sum(left) == 0, f"a minute was not enough for {left}"
# Nothing is there any more: so somebody must have had and deleted all that was ever promised.
lost = sent - deleting
assert not lost, f"{len(lost)} lost, {len(lost - received)} of them never received: {sorted(lost)[:10]}"
assert refusals, "the server was never away"
print("ok")
