"""A Celery application whose broker is the server's SQS. Settings come in the environment."""

import os
import urllib.parse

from celery import Celery

HOST = os.environ["SQS_ENDPOINT"].split("://")[1]
KEY = urllib.parse.quote(os.environ["SQS_KEY"], safe="")

app = Celery("clients", broker=f"sqs://{KEY}:{KEY}@{HOST}/")
app.conf.update(
    broker_transport_options={
        "region": "eu-central-1",
        "is_secure": False,
        "queue_name_prefix": "celery-test-",
        "visibility_timeout": 30,
        "wait_time_seconds": 5,
        "polling_interval": 0.1,
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_default_queue="work",
    worker_prefetch_multiplier=1,
    # There is no fan-out over SQS: these would ask for it.
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


def note(line):
    with open(os.environ["RESULTS"], "a") as results:
        results.write(line + "\n")


@app.task(bind=True, max_retries=3)
def add(self, a, b):
    # One of them fails at first, and is tried again as a delayed message.
    if (a, b) == (3, 4) and self.request.retries == 0:
        note("3 + 4 failed")
        raise self.retry(countdown=1)
    note(f"{a} + {b} = {a + b}")


@app.task
def slow():
    import time

    note("slow began")
    time.sleep(3)
    note("slow ended")
