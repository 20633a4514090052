"""The API's description of itself (OpenAPI), made when somebody first asks for it.

It takes half a second of a processor, a third of what `penstock up` needs to start.
"""

import asyncio
import json
from typing import Any

from fastapi import FastAPI


class Description:
    """Of one app: made once, off the event loop."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._making = asyncio.Lock()
        self._text = b""

    async def text(self) -> bytes:
        """As JSON. Any number of people may ask at once."""
        async with self._making:
            if not self._text:
                self._text = await asyncio.to_thread(self._make)
        return self._text

    def _make(self) -> bytes:
        return json.dumps(described(self.app)).encode()


def described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI with our bearer authentication."""
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    return schema
