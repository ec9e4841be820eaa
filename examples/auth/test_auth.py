"""Four ways to load endpoints that need a login."""

from __future__ import annotations

from collections.abc import Generator

import httpx
import pytest

pytestmark = pytest.mark.fileperf(app="auth.app:app")


async def log_in(client: httpx.AsyncClient) -> list[str]:
    answer = await client.post("/login", json={"user": "user"})
    return [answer.raise_for_status().json()["token"]]


@pytest.mark.fileperf(setup=log_in)
def test_setup(fileperf):
    fileperf.get("/files", headers={"Authorization": "Bearer {token}"}, feed=lambda tokens: tokens)


def test_fixed_token(fileperf):
    fileperf.get("/files", headers={"Authorization": "Bearer a-token-for-tests"})


def test_basic_credentials(fileperf):
    fileperf.get("/basic", auth=("user", "a-password-for-tests"))


class Login(httpx.Auth):
    """Logs in when an answer is a 401, and keeps the token."""

    requires_response_body = True
    token = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self.token}"
        response = yield request
        if response.status_code == 401:
            answer = yield httpx.Request("POST", request.url.join("/login"), json={"user": "user"})
            self.token = answer.json()["token"]
            request.headers["Authorization"] = f"Bearer {self.token}"
            yield request


def test_auth_flow(fileperf):
    fileperf.get("/files", auth=Login())


async def login_and_list(client: httpx.AsyncClient) -> None:
    if "Authorization" not in client.headers:
        answer = await client.post("/login", json={"user": "user"})
        client.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    response = await client.get("/files")
    response.raise_for_status()


def test_journey(fileperf):
    fileperf.run(login_and_list, connections=16)
