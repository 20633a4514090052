"""An S3 bucket with nothing but the standard library, so that a job needs no package to keep checkpoints. `checkpoints`
uses it where `obstore` is not installed; that one is faster with large files, and knows other object stores too.

Requests are signed with AWS's Signature Version 4; access comes from the usual `AWS_` variables.
"""

import hashlib
import hmac
import http.client
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

BLOCK: Final = 1 << 20
TRIES: Final = 4  #: a second, two and four between them
TIMEOUT_S: Final = 60
EMPTY: Final = hashlib.sha256(b"").hexdigest()


class PlainBucket:
    def __init__(self, bucket: str, prefix: str) -> None:
        self.prefix, self.bucket = prefix, bucket
        self.region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        self.endpoint = os.environ.get("AWS_ENDPOINT_URL") or f"https://s3.{self.region}.amazonaws.com"

    def put(self, name: str, content: bytes | Path) -> None:
        with self._answer("PUT", self._key(name), content=content):
            return

    def blocks(self, name: str) -> Iterator[bytes]:
        with self._answer("GET", self._key(name)) as answer:
            while block := answer.read(BLOCK):
                yield block

    def names(self) -> list[str]:
        keys: list[str] = []
        more = {"list-type": "2", "prefix": f"{self.prefix}/"}
        while more:
            with self._answer("GET", "", more) as answer:
                page = ET.fromstring(answer.read())
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            keys += [row.findtext(f"{space}Key", "") for row in page.iter(f"{space}Contents")]
            token = page.findtext(f"{space}NextContinuationToken", "")
            more = {**more, "continuation-token": token} if token else {}
        return [key.removeprefix(f"{self.prefix}/") for key in keys]

    def delete(self, name: str) -> None:
        with self._answer("DELETE", self._key(name)):
            return

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    # --- one request ---------------------------------------------------------------------------------------------

    @contextmanager
    def _answer(
        self, verb: str, key: str, query: dict[str, str] | None = None, content: bytes | Path = b""
    ) -> Iterator[http.client.HTTPResponse]:
        """Tried a few times: a bucket may be busy, and all that we ask does no harm twice."""
        path = quote(f"/{self.bucket}/{key}")
        asked = urlencode(sorted((query or {}).items()), quote_via=quote, safe="-_.~")
        digest = _digest(content)
        for left in reversed(range(TRIES)):
            door = self._door()
            try:
                answer = self._ask(door, verb, path, asked, content, digest)
                if answer.status < 500 or not left:
                    _refuse(answer, verb, key)
                    yield answer
                    return
            except (ConnectionError, TimeoutError, http.client.HTTPException):
                if not left:
                    raise
            finally:
                door.close()
            time.sleep(2 ** (TRIES - 1 - left))

    def _door(self) -> http.client.HTTPConnection:
        where = urlsplit(self.endpoint)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        return kind(where.netloc, timeout=TIMEOUT_S)

    def _ask(
        self, door: http.client.HTTPConnection, verb: str, path: str, query: str, content: bytes | Path, digest: str
    ) -> http.client.HTTPResponse:
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        headers = self._signed(verb, path, query, digest) | {"Content-Length": str(size)}
        target = f"{path}?{query}" if query else path
        if isinstance(content, bytes):
            door.request(verb, target, content, headers)
        else:
            with content.open("rb") as file:
                door.request(verb, target, file, headers)
        return door.getresponse()

    def _signed(self, verb: str, path: str, query: str, digest: str) -> dict[str, str]:
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": urlsplit(self.endpoint).netloc, "x-amz-content-sha256": digest, "x-amz-date": at}
        if session := os.environ.get("AWS_SESSION_TOKEN"):
            headers["x-amz-security-token"] = session
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        scope = f"{at[:8]}/{self.region}/s3/aws4_request"
        asked = hashlib.sha256(f"{verb}\n{path}\n{query}\n{lines}\n{names}\n{digest}".encode()).hexdigest()
        key = f"AWS4{os.environ.get('AWS_SECRET_ACCESS_KEY', '')}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{asked}".encode(), "sha256").hex()
        who = f"{os.environ.get('AWS_ACCESS_KEY_ID', '')}/{scope}"
        credential = f"AWS4-HMAC-SHA256 Credential={who}, SignedHeaders={names}, Signature={signature}"
        return headers | {"Authorization": credential}


def _refuse(answer: http.client.HTTPResponse, verb: str, key: str) -> None:
    if answer.status >= 300:
        body = answer.read(500).decode("utf-8", "replace")
        raise OSError(f"the bucket answers {answer.status} to {verb} {key or 'its list'}: {body}")


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest() if content else EMPTY
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
