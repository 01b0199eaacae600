"""What is refused, by boto3: wrong keys, clocks and rights, forged receipts, batches and messages
that cannot be."""

import datetime
import json
import urllib.error
import urllib.parse
import urllib.request

import suite
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from suite import ENDPOINT, KEY, REGION, bodies, case, client, equal, fails, queue, receive, sqs

NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


def api(method, path, body=None, expected=201):
    """A call of the product's own API."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(ENDPOINT + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        equal(answer.status, expected)
        text = answer.read()
        return json.loads(text) if text else None


class SignedAt(SigV4Auth):
    """Signs as of another time."""

    def __init__(self, moved, *arguments):
        super().__init__(*arguments)
        self.moved = moved

    def add_auth(self, request):
        now = datetime.datetime.now(datetime.timezone.utc) + self.moved
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        self._modify_request_before_signing(request)
        canonical = self.canonical_request(request)
        signature = self.signature(self.string_to_sign(request, canonical), request)
        self._inject_signature_to_request(request, signature)


def call(request):
    """Sends a request as it is; the status and the text."""
    prepared = request.prepare()
    raw = urllib.request.Request(prepared.url, prepared.body or None, dict(prepared.headers), method=prepared.method)
    try:
        with urllib.request.urlopen(raw) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def list_queues_request(**more):
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    return AWSRequest("POST", ENDPOINT + "/", data=b"{}", headers={**headers, **more})


@case
def missing_queue_is_missing_in_every_action():
    url = queue("gone")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = receive(url)
    sqs.delete_queue(QueueUrl=url)
    handle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    entry = {"Id": "a", "ReceiptHandle": message["ReceiptHandle"]}
    for action, arguments in [
        (sqs.get_queue_url, {"QueueName": "gone"}),
        (sqs.delete_queue, {"QueueUrl": url}),
        (sqs.purge_queue, {"QueueUrl": url}),
        (sqs.get_queue_attributes, {"QueueUrl": url, "AttributeNames": ["All"]}),
        (sqs.set_queue_attributes, {"QueueUrl": url, "Attributes": {"DelaySeconds": "1"}}),
        (sqs.send_message, {"QueueUrl": url, "MessageBody": "x"}),
        (sqs.send_message_batch, {"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
        (sqs.receive_message, {"QueueUrl": url, "WaitTimeSeconds": 5}),
        (sqs.delete_message, handle),
        (sqs.delete_message_batch, {"QueueUrl": url, "Entries": [entry]}),
        (sqs.change_message_visibility, {**handle, "VisibilityTimeout": 1}),
        (sqs.change_message_visibility_batch, {"QueueUrl": url, "Entries": [{**entry, "VisibilityTimeout": 1}]}),
        (sqs.list_queue_tags, {"QueueUrl": url}),
        (sqs.tag_queue, {"QueueUrl": url, "Tags": {"a": "b"}}),
        (sqs.untag_queue, {"QueueUrl": url, "TagKeys": ["a"]}),
        (sqs.list_dead_letter_source_queues, {"QueueUrl": url}),
        (sqs.add_permission, {"QueueUrl": url, "Label": "x", "AWSAccountIds": ["123456789012"], "Actions": ["*"]}),
        (sqs.remove_permission, {"QueueUrl": url, "Label": "x"}),
    ]:
        error = fails(NO_QUEUE, action, **arguments)
        assert isinstance(error, sqs.exceptions.QueueDoesNotExist), action
    # The queues of other tenants are none of ours; the number of an AWS account says nothing.
    url = queue("here")
    fails(NO_QUEUE, sqs.get_queue_url, QueueName="here", QueueOwnerAWSAccountId="acme")
    equal(sqs.get_queue_url(QueueName="here", QueueOwnerAWSAccountId="123456789012")["QueueUrl"], url)
    fails(NO_QUEUE, sqs.send_message, QueueUrl=url.replace("/default/", "/acme/"), MessageBody="x")
    sqs.send_message(QueueUrl=url.replace("/default/", "/123456789012/"), MessageBody="x")
    fails("InvalidAddress", sqs.send_message, QueueUrl=ENDPOINT + "/", MessageBody="x")


@case
def wrong_keys_are_told_apart():
    fails("SignatureDoesNotMatch", client(secret="wrong").list_queues)
    fails("InvalidClientTokenId", client("sk_" + "0" * 48).list_queues)
    fails("InvalidClientTokenId", client("AKIAIOSFODNN7EXAMPLE").list_queues)
    # Which secret goes with a key that there is not, nobody knows.
    fails("InvalidClientTokenId", client("sk_" + "0" * 48, secret="wrong").list_queues)
    fails("InvalidClientTokenId", client("AKIAIOSFODNN7EXAMPLE", secret=KEY).list_queues)


@case
def revoked_key_and_missing_scope_are_refused():
    url = queue("scopes")
    made = api("POST", "/v1/keys", {"name": "consumer", "scopes": ["consume"]})
    consumer = client(made["key"])
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = consumer.receive_message(QueueUrl=url)["Messages"]
    consumer.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    fails("AccessDenied", consumer.send_message, QueueUrl=url, MessageBody="x")
    fails("AccessDenied", consumer.purge_queue, QueueUrl=url)
    fails("AccessDenied", consumer.create_queue, QueueName="mine")
    made_2 = api("POST", "/v1/keys", {"name": "producer", "scopes": ["produce"]})
    producer = client(made_2["key"])
    producer.send_message(QueueUrl=url, MessageBody="x")
    fails("AccessDenied", producer.receive_message, QueueUrl=url)
    # Clients find their queue by its name before anything else.
    for either in (producer, consumer):
        equal(either.get_queue_url(QueueName="scopes")["QueueUrl"], url)
    api("DELETE", f"/v1/keys/{made['keyId']}", expected=204)
    fails("InvalidClientTokenId", consumer.receive_message, QueueUrl=url)


@case
def wrong_clock_is_told():
    credentials = Credentials(KEY, KEY)
    for minutes, status in ((0, 200), (-4, 200), (-16, 400), (16, 400)):
        request = list_queues_request()
        SignedAt(datetime.timedelta(minutes=minutes), credentials, "sqs", REGION).add_auth(request)
        got, text = call(request)
        equal(got, status)
        assert (status == 200) != ("RequestExpired" in text), text


@case
def unsigned_and_half_signed_requests_are_refused():
    status, text = call(list_queues_request())
    equal(status, 403)
    assert "MissingAuthenticationToken" in text, text
    status, text = call(list_queues_request(Authorization="AWS4-HMAC-SHA256 Credential=x"))
    equal(status, 400)
    assert "IncompleteSignature" in text, text
    # Signed for another service, or changed on its way.
    request = list_queues_request()
    SigV4Auth(Credentials(KEY, KEY), "sns", REGION).add_auth(request)
    status, text = call(request)
    equal(status, 403)
    request = list_queues_request()
    SigV4Auth(Credentials(KEY, KEY), "sqs", REGION).add_auth(request)
    request.data = b'{"MaxResults": 1}'
    status, text = call(request)
    equal(status, 403)
    assert "InvalidSignature" in text, text


@case
def presigned_url_works_until_it_expires():
    """Signed in the query, as for a browser or curl: the query protocol, GET or POST."""
    url = queue("presigned")
    for method in ("POST", "GET"):
        body = f"by {method}, ü & <x> + 100%"
        query = urllib.parse.urlencode(
            {"Action": "SendMessage", "MessageBody": body, "Version": "2012-11-05"}, quote_via=urllib.parse.quote)
        request = AWSRequest(method, f"{url}?{query}")
        SigV4QueryAuth(Credentials(KEY, KEY), "sqs", REGION, expires=60).add_auth(request)
        status, text = call(request)
        equal((status, suite.md5(body) in text), (200, True))
        equal(suite.drain(url), [body])
        request.url = request.url.replace("MessageBody=by", "MessageBody=BY")
        status, text = call(request)
        equal((status, "SignatureDoesNotMatch" in text), (403, True))
    for path in ("/", "/sqs", "/sqs/"):
        for signed in (SigV4QueryAuth, SigV4Auth):
            request = AWSRequest("GET", ENDPOINT + path + "?Action=ListQueues&Version=2012-11-05")
            signed(Credentials(KEY, KEY), "sqs", REGION).add_auth(request)
            status, text = call(request)
            equal((status, f"<QueueUrl>{url}</QueueUrl>" in text), (200, True))
    # What is of no queue is not asked of one.
    request = AWSRequest("GET", url + "?Action=ListQueues&Version=2012-11-05")
    SigV4Auth(Credentials(KEY, KEY), "sqs", REGION).add_auth(request)
    status, text = call(request)
    equal((status, "<Code>InvalidAction</Code>" in text), (400, True))


@case
def forged_receipts_are_refused():
    url, other = queue("receipts"), queue("other-receipts")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = receive(url)
    good = message["ReceiptHandle"]
    changed = good[:-4] + ("AAAA" if not good.endswith("AAAA") else "BBBB")
    for handle in ("nonsense", "AQEB" * 60, changed, good + "A", "ü"):
        error = fails("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)
        assert isinstance(error, sqs.exceptions.ReceiptHandleIsInvalid), type(error)
        fails("ReceiptHandleIsInvalid", sqs.change_message_visibility, QueueUrl=url,
              ReceiptHandle=handle, VisibilityTimeout=0)
    # The receipt of one queue does nothing in another.
    sqs.send_message(QueueUrl=other, MessageBody="y")
    receive(other)
    fails("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=other, ReceiptHandle=good)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=good)


@case
def batches_that_cannot_be_are_refused_whole():
    url = queue("batches")
    prefix = "AWS.SimpleQueueService."

    def send(*entries):
        return sqs.send_message_batch(QueueUrl=url, Entries=list(entries))

    def entry(name, body="x"):
        return {"Id": name, "MessageBody": body}

    def refused(code, exception, *entries):
        error = fails(prefix + code, lambda **_: send(*entries))
        assert isinstance(error, getattr(sqs.exceptions, exception)), type(error)

    refused("EmptyBatchRequest", "EmptyBatchRequest")
    refused("TooManyEntriesInBatchRequest", "TooManyEntriesInBatchRequest", *[entry(str(n)) for n in range(11)])
    refused("BatchEntryIdsNotDistinct", "BatchEntryIdsNotDistinct", entry("a"), entry("b"), entry("a"))
    refused("InvalidBatchEntryId", "InvalidBatchEntryId", entry("a b"))
    refused("InvalidBatchEntryId", "InvalidBatchEntryId", entry("a" * 81))
    refused("BatchRequestTooLong", "BatchRequestTooLong", entry("a", "x" * 200_000), entry("b", "x" * 100_000))
    fails(prefix + "EmptyBatchRequest", sqs.delete_message_batch, QueueUrl=url, Entries=[])
    fails(prefix + "EmptyBatchRequest", sqs.change_message_visibility_batch, QueueUrl=url, Entries=[])
    equal(receive(url), [])


@case
def messages_that_cannot_be_are_refused():
    url = queue("contents")
    small = queue("small", MaximumMessageSize="1024")

    def refused(code, body="x", to=url, **more):
        return fails(code, sqs.send_message, QueueUrl=to, MessageBody=body, **more)

    def attribute(kind, value):
        name = "BinaryValue" if isinstance(value, bytes) else "StringValue"
        return {"DataType": kind, name: value}

    sqs.send_message(QueueUrl=url, MessageBody="x" * 262_144)
    refused("InvalidParameterValue", "x" * 262_145)
    refused("InvalidParameterValue", "ü" * 131_073)
    refused("InvalidParameterValue", "x" * 262_140, MessageAttributes={"a": attribute("String", "bcd")})
    sqs.send_message(QueueUrl=small, MessageBody="x" * 1024)
    refused("InvalidParameterValue", "x" * 1025, to=small)
    refused("MissingParameter", "")
    for bad in ("\u0001", "a\u0000b", "\ufffe", "\uffff", "\u001b"):
        error = refused("InvalidMessageContents", bad)
        assert isinstance(error, sqs.exceptions.InvalidMessageContents), type(error)
    for name, value in [
        ("n", attribute("Number", "12x")),
        ("n", attribute("Number", "1" * 39)),
        ("n", attribute("Number", "1e127")),
        ("s", attribute("String", "")),
        ("b", attribute("Binary", b"")),
        ("x", attribute("Text", "x")),
        ("x", {"DataType": "", "StringValue": "x"}),
        ("x", {"DataType": "String", "BinaryValue": b"x"}),
        ("AWS.x", attribute("String", "x")),
        ("amazon.x", attribute("String", "x")),
        (".x", attribute("String", "x")),
        ("x.", attribute("String", "x")),
        ("x..y", attribute("String", "x")),
        ("x y", attribute("String", "x")),
        ("x" * 257, attribute("String", "x")),
    ]:
        refused("InvalidParameterValue", MessageAttributes={name: value})
    many = {f"a{n}": attribute("String", "x") for n in range(11)}
    refused("InvalidParameterValue", MessageAttributes=many)
    refused("InvalidParameterValue", MessageAttributes={"a": attribute("String", "\u0001")})
    refused("InvalidParameterValue", MessageSystemAttributes={"Other": attribute("String", "x")})
    equal(len(suite.drain(url)), 1)


@case
def endpoint_works_with_and_without_its_path():
    url = queue("paths")
    for endpoint in (ENDPOINT, ENDPOINT + "/", ENDPOINT + "/sqs", ENDPOINT + "/sqs/"):
        other = client(endpoint=endpoint)
        equal(other.get_queue_url(QueueName="paths")["QueueUrl"], url)
        other.send_message(QueueUrl=url, MessageBody=endpoint)
        got = other.receive_message(QueueUrl=url)["Messages"]
        equal(bodies(got), [endpoint])
        other.delete_message(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"])


suite.run()
