"""What ``thermocline console`` refuses before it listens."""

from __future__ import annotations

import pytest

from thermocline import cli

SERVER = ("--server", "grpc://127.0.0.1:31337")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no server is named; give --server grpc://HOST:PORT, or set THERMOCLINE_URI."),
        (
            ("--server", "http://x"),
            "'http://x' is not a server's address; write grpc://HOST:PORT, or grpc+tls://HOST:PORT.",
        ),
        (
            (*SERVER, "--tls-key", "k.pem"),
            "--tls-certificate and --tls-key go together; give both or neither.",
        ),
        (
            (*SERVER, "--host", "0.0.0.0"),
            "passwords would cross the network to 0.0.0.0 in clear text; give --tls-certificate and --tls-key, or "
            "--allow-insecure-public where a proxy in front has TLS.",
        ),
        (
            (*SERVER, "--oidc-issuer", "https://login.example"),
            "--oidc-issuer and --oidc-client go together; give both or neither.",
        ),
        (
            (*SERVER, "--oidc-issuer", "http://login.example", "--oidc-client", "console"),
            "--oidc-issuer is an address of https; http is for a provider on this machine only.",
        ),
        *(
            (
                (*SERVER, "--oidc-issuer", issuer, "--oidc-client", "console"),
                "--oidc-issuer is an address of https; http is for a provider on this machine only.",
            )
            for issuer in ("https://[login.example", "https://login.example:port", "https://")
        ),
        (
            (*SERVER, "--tls-certificate", "/no/c.pem", "--tls-key", "/no/k.pem"),
            "--tls-certificate or --tls-key cannot be used: a file is missing or is not valid.",
        ),
    ],
)
def test_what_it_cannot_start_with_is_a_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THERMOCLINE_URI", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main(["console", *arguments])
    assert (ended.value.code, capsys.readouterr().err) == (2, f"thermocline: {sentence}\n")
