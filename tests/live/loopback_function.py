"""A judge that a user writes: it asks a server on the loopback, one request a call."""

import os

import httpx2

from judges.live import classify


async def ask(messages, *, schema, max_output_tokens):
    async with httpx2.AsyncClient(verify=False) as client:
        response = await client.post(
            os.environ["LOOPBACK_URL"],
            json={"messages": messages, "schema": schema, "max_tokens": max_output_tokens},
            timeout=60,
        )
    if response.status_code != httpx2.codes.OK:
        raise classify((), response.status_code, "", response.text, response.headers)
    return response.json()
