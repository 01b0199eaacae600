"""What the scripts beside this one share: clients of a server, and cases that are run one by one.

A script is run as `python script.py ENDPOINT KEY`; it ends with 1 if a case fails.
"""

import hashlib
import json
import struct
import sys
import time
import traceback
import urllib.request

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT, KEY = sys.argv[1], sys.argv[2]
REGION = "eu-central-1"
ACCOUNT = "default"
CASES = []


def client(key=KEY, secret=None, endpoint=ENDPOINT):
    """A client that repeats nothing: an error is seen as it came."""
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=key if secret is None else secret,
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=30),
    )


sqs = client()
PROTOCOL = sqs.meta.service_model.metadata["protocol"]


def case(function):
    CASES.append(function)
    return function


def queue(name, **attributes):
    """A new queue; its URL."""
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def change(name, **settings):
    """Changes settings of a queue that only its own API knows."""
    url = ENDPOINT.removesuffix("/").removesuffix("/sqs") + f"/v1/queues/{name}"
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    body = json.dumps(settings).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PATCH")).close()


def attributes(url, *names):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])["Attributes"]


def arn(url):
    return attributes(url, "QueueArn")["QueueArn"]


def receive(url, count=10, **more):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **more).get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def delete(url, *messages):
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def drain(url):
    """Receives and deletes all that can be received now; the bodies."""
    seen = []
    while messages := receive(url):
        seen += bodies(messages)
        delete(url, *messages)
    return seen


def fails(code, call, /, **arguments):
    """The call must be refused with this code; the error."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        got = error.response["Error"]["Code"]
        assert got == code, f"{got} instead of {code}: {error}"
        assert error.response["Error"]["Message"], "an error says what is wrong"
        assert error.response["ResponseMetadata"]["RequestId"]
        return error
    raise AssertionError(f"{code} was expected, but it was answered: {answer}")


def equal(got, expected):
    assert got == expected, f"\n  got      {got!r}\n  expected {expected!r}"


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def md5_of_attributes(attributes):
    """As AWS documents it: lengths and values of names, types and values, sorted by name."""
    digest = hashlib.md5()

    def add(data):
        digest.update(struct.pack("!I", len(data)) + data)

    for name in sorted(attributes):
        attribute = attributes[name]
        add(name.encode())
        add(attribute["DataType"].encode())
        if attribute["DataType"].startswith("Binary"):
            digest.update(b"\x02")
            add(attribute["BinaryValue"])
        else:
            digest.update(b"\x01")
            add(attribute["StringValue"].encode())
    return digest.hexdigest()


def run():
    failed = 0
    print(f"boto3 {boto3.__version__}, botocore {botocore.__version__}, protocol {PROTOCOL}")
    for function in CASES:
        started = time.monotonic()
        try:
            function()
            outcome = "ok"
        except Exception:
            failed += 1
            outcome = "FAILED\n" + traceback.format_exc()
        print(f"{time.monotonic() - started:6.2f} s  {function.__name__}: {outcome}", flush=True)
    sys.exit(1 if failed else 0)
