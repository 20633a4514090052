"""Reads spot notices from an SQS queue: an EventBridge rule puts there what EC2 says of its machines. `eks` opens one
where an offer names it, `machine_notices` reads it in a loop, and `pools` finds the Node that a notice is about.

The queue is Penstock's own: each message is deleted once the engine was told, so that a crash between the two tells it
again. Whatever else lies in the queue is deleted unread.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from penstock.capacity.machine_notices import BlockingQueue, MachineNotice

WAIT_SECONDS: Final = 5  #: a read waits for messages so long, and a process that ends waits for its read
MOST: Final = 10  #: messages of one read, the most that SQS gives
MOST_WORDS: Final = 200
#: An instance's id, as the Node's `providerID` ends: `aws:///eu-central-1a/i-0123456789abcdef0`.
INSTANCE: Final = re.compile("i-[0-9a-f]{8,32}")
SPOT: Final = "EC2 Spot Instance Interruption Warning"
STATE: Final = "EC2 Instance State-change Notification"
HEALTH: Final = "AWS Health Event"
ENDING: Final = {"stopping", "stopped", "shutting-down", "terminated"}


class SpotQueue(BlockingQueue):
    def __init__(self, client: Any, url: str, errors: Callable[[], AbstractContextManager[None]]) -> None:
        """`errors`: a context in which AWS' errors become a site's."""
        self.client, self.url, self.errors = client, url, errors

    def read(self) -> Sequence[MachineNotice]:
        with self.errors():
            answer = self.client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=MOST, WaitTimeSeconds=WAIT_SECONDS
            )
        return [
            MachineNotice(str(message["ReceiptHandle"]), *notice_of(str(message.get("Body", ""))))
            for message in answer.get("Messages") or ()
        ]

    def forget(self, notices: Sequence[MachineNotice]) -> None:
        entries = [{"Id": str(number), "ReceiptHandle": notice.receipt} for number, notice in enumerate(notices)]
        with self.errors():
            self.client.delete_message_batch(QueueUrl=self.url, Entries=entries)


def endpoint_of(url: str) -> str:
    """The address of SQS in the queue's URL: `https://sqs.eu-central-1.amazonaws.com/123456789012/spot`."""
    return url.rsplit("/", 2)[0]


def notice_of(body: str) -> tuple[tuple[str, ...], str]:
    """The machines that a message says will end, and why, in words; no machines: it says nothing of that kind. Whoever
    may send to the queue writes it, so nothing in it is taken for granted.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return (), ""
    if not isinstance(event, dict) or not isinstance(event.get("detail"), dict):
        return (), ""
    kind, detail = event.get("detail-type"), event["detail"]
    state = str(detail.get("state"))
    if kind == SPOT:
        return _instances([detail.get("instance-id")]), "AWS takes its spot machine back"
    if kind == STATE and state in ENDING:
        return _instances([detail.get("instance-id")]), f"its machine is {state}, says EC2"
    if kind == HEALTH and detail.get("eventTypeCategory") == "scheduledChange":
        return _affected(detail), f"AWS has scheduled an end of its machine: {_code(detail)}"
    return (), ""


def _affected(detail: Mapping[str, Any]) -> tuple[str, ...]:
    entities = detail.get("affectedEntities")
    rows = entities if isinstance(entities, list) else []
    return _instances(row.get("entityValue") for row in rows[:MOST_WORDS] if isinstance(row, dict))


def _code(detail: Mapping[str, Any]) -> str:
    return str(detail.get("eventTypeCode", ""))[:MOST_WORDS]


def _instances(ids: Iterable[object]) -> tuple[str, ...]:
    return tuple(text for text in ids if isinstance(text, str) and INSTANCE.fullmatch(text))
