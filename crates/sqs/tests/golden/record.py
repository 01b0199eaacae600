"""Writes requests-json.json or requests-query.json with the real signing client.

Run once with a botocore that speaks JSON (1.44.0) and once with one that speaks the query protocol
(1.29.165); which file is written follows from the installed model.
"""

import base64
import datetime
import json
import pathlib
from urllib.parse import urlsplit

import botocore.auth
import botocore.credentials
import botocore.session
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from cases import REQUESTS

ACCESS_KEY, SECRET = "sk_0f3a", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Clock(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return cls(*NOW.timetuple()[:6])

    @classmethod
    def now(cls, tz=None):
        return cls(*NOW.timetuple()[:6], tzinfo=tz)


def freeze():
    if hasattr(botocore.auth, "get_current_datetime"):
        botocore.auth.get_current_datetime = lambda remove_tzinfo=True: NOW
    else:
        botocore.auth.datetime = type("m", (), {"datetime": Clock})


class Sent(Exception):
    pass


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def record(kind, action, params, request):
    # Those of the SDK itself are not signed and differ each time.
    headers = {key: text(value) for key, value in request.headers.items()
               if not key.startswith("amz-sdk-")}
    headers.setdefault("Host", urlsplit(request.url).netloc)
    return {"kind": kind, "action": action, "input": plain(params), "method": request.method,
            "url": request.url, "headers": headers, "body": text(request.body or "")}


def client(token=None):
    session = botocore.session.get_session()
    session.set_credentials(ACCESS_KEY, SECRET, token)
    return session.create_client("sqs", region_name="eu-west-3",
                                 endpoint_url="http://localhost:8080/sqs",
                                 config=Config(retries={"max_attempts": 0}, user_agent="test"))


def sent(sqs, action, params):
    method = {v: k for k, v in sqs.meta.method_to_api_mapping.items()}[action]
    caught = []

    def catch(request, **_):
        caught.append(request)
        raise Sent()

    sqs.meta.events.register("before-send.sqs", catch)
    try:
        getattr(sqs, method)(**params)
    except Sent:
        pass
    sqs.meta.events.unregister("before-send.sqs", catch)
    return caught[0]


def by_hand():
    """Requests that a client makes only with a signer of its own."""
    base = "http://localhost:8080/sqs"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = "Action=ListQueues&Version=2012-11-05"
    cases = [
        ("unsigned payload", "POST", base, {**form, "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}, body),
        ("date header", "POST", base, {**form, "Date": "any"}, body),
        ("straightened path", "POST", base + "//acme/./x/../or%20ders/?b=2&a=~%2F&a=&B", form, body),
        ("spaces in a header", "GET", base + "?Action=ListQueues", {"My-Header": "  a   b\tc "}, ""),
        ("no path", "GET", "http://localhost:8080?Action=ListQueues", {}, ""),
    ]
    rows = []
    for kind, method, url, headers, body in cases:
        request = AWSRequest(method, url, headers=headers, data=body)
        credentials = botocore.credentials.Credentials(ACCESS_KEY, SECRET)
        botocore.auth.SigV4Auth(credentials, "sqs", "eu-west-3").add_auth(request)
        rows.append(record(kind, "ListQueues", {}, request.prepare()))
    return rows


def main():
    freeze()
    sqs = client()
    protocol = sqs.meta.service_model.metadata["protocol"]
    rows = [record("signed", action, params, sent(sqs, action, params))
            for action, params in REQUESTS]
    action, params = "ListQueues", {"QueueNamePrefix": "or"}
    rows.append(record("session token", action, params, sent(client("token"), action, params)))
    if protocol == "json":
        params = {"QueueUrl": REQUESTS[0][1]["QueueUrl"], "MessageSystemAttributeNames": ["All"]}
        rows.append(record("signed", "ReceiveMessage", params, sent(sqs, "ReceiveMessage", params)))
    else:
        url = sqs.generate_presigned_url("send_message", ExpiresIn=3600, HttpMethod="GET", Params={
            "QueueUrl": REQUESTS[0][1]["QueueUrl"], "MessageBody": "a b+c/é~*'"})
        request = AWSRequest("GET", url).prepare()
        params = {"QueueUrl": REQUESTS[0][1]["QueueUrl"], "MessageBody": "a b+c/é~*'"}
        rows.append(record("presigned", "SendMessage", params, request))
    document = {"signatures": by_hand(),
                "botocore": botocore.__version__, "secret": SECRET, "accessKeyId": ACCESS_KEY,
                "now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), "requests": rows}
    path = pathlib.Path(__file__).parent / f"requests-{protocol}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    print(path.name, len(rows))


if __name__ == "__main__":
    main()
