"""SQS as moto plays it, behind plain http, and EC2's announcements as an EventBridge rule puts them into a queue."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import boto3
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from moto.core.botocore_stubber import BotocoreStubber
from moto.sqs.models import sqs_backends

from penstock.capacity.spot_queue import endpoint_of
from tests.capacity.played_eks import REGION

ACCOUNT: Final = "123456789012"


class PlayedQueue:
    def __init__(self, address: str) -> None:
        self.address = address
        self.sqs = boto3.client(
            "sqs",
            region_name=REGION,
            endpoint_url=address,
            aws_access_key_id="played",
            aws_secret_access_key="played",
        )
        self.sqs.create_queue(QueueName="spot")
        self.url = f"{address}/{ACCOUNT}/spot"

    def announce(self, kind: str, detail: dict[str, Any], source: str = "aws.ec2") -> None:
        """An event, in the envelope that EventBridge gives it."""
        event = {"version": "0", "account": ACCOUNT, "region": REGION, "source": source, "detail-type": kind}
        self.send(json.dumps({**event, "time": "2026-11-18T22:50:04Z", "resources": [], "detail": detail}))

    def send(self, body: str) -> None:
        """What anybody may write who may write to the queue."""
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def left(self) -> int:
        """Messages that are still there, those being read included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, counts.values()))


@contextmanager
def played_queue() -> Iterator[PlayedQueue]:
    sqs_backends[ACCOUNT][REGION].reset()  # all of moto's own `reset` would take EKS' clusters with it

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = f"https://sqs.{REGION}.amazonaws.com{self.path}"
            asked = AWSPreparedRequest("POST", url, HeadersDict(dict(self.headers.items())), raw, False)
            answer = BotocoreStubber().process_request(asked)
            assert answer is not None
            status, headers, said = answer
            out = said.encode() if isinstance(said, str) else said
            self.send_response(status)
            for key in ("Content-Type", "x-amzn-query-error"):
                if key in headers:
                    self.send_header(key, headers[key])
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        queue = PlayedQueue(f"http://127.0.0.1:{server.server_port}")
        assert endpoint_of(queue.url) == queue.address
        yield queue
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
