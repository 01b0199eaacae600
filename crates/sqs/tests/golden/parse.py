"""Reads answers.json with the parser of the installed botocore, and compares with outputs.json.

Run with both botocores of record.py: the one that speaks JSON reads the bodies of the JSON
protocol, the other one the XML.
"""

import base64
import json
import pathlib

import botocore.parsers
import botocore.session

FOLDER = pathlib.Path(__file__).parent
MODEL = botocore.session.get_session().get_service_model("sqs")
PROTOCOL = MODEL.metadata["protocol"]
PARSER = botocore.parsers.create_parser(PROTOCOL)


def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def parse(row, action):
    answer = row[PROTOCOL]
    response = {"status_code": answer["status"], "body": answer["body"].encode(),
                "headers": {key.lower(): value for key, value in answer["headers"].items()}}
    shape = MODEL.operation_model(action).output_shape
    return plain(PARSER.parse(response, shape))


def without_empty(value):
    """In XML an empty list cannot be told from none."""
    return {key: item for key, item in value.items() if item != []}


def main():
    document = json.loads((FOLDER / "answers.json").read_text())
    for row in document["outputs"]:
        parsed = parse(row, row["action"])
        metadata = parsed.pop("ResponseMetadata")
        assert metadata["RequestId"] == "request-1", metadata
        expected = row["output"] if PROTOCOL == "json" else without_empty(row["output"])
        assert parsed == expected, (row["action"], parsed, expected)
    modelled = {shape.name for shape in MODEL.error_shapes}
    seen = set()
    for row in document["errors"]:
        parsed = parse(row, "SendMessage")
        error, metadata = parsed["Error"], parsed["ResponseMetadata"]
        assert metadata["RequestId"] == "request-1", metadata
        assert error["Code"] == row["code"], (row, error)
        assert error["Message"] == row["message"], (row, error)
        assert error["Type"] == row["fault"], (row, error)
        if PROTOCOL == "json":
            assert error["QueryErrorCode"] == row["shape"], (row, error)
            seen.add(error["QueryErrorCode"])
        else:
            seen |= {s.name for s in MODEL.error_shapes if s.error_code == error["Code"]}
    # Of those that the model declares, only the ones of an encryption that is not ours may lack.
    lacking = {name for name in modelled - seen if not name.startswith("Kms")}
    assert not lacking, lacking
    print(botocore.__version__, PROTOCOL, "outputs:", len(document["outputs"]),
          "errors:", len(document["errors"]))


if __name__ == "__main__":
    main()
