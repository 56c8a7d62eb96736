#!/usr/bin/env bash
# mockoidc v0.0.0-20261103160011-e06ed0b7cb7f (a Go package): its token endpoint refuses a way to log a client in that it announces.
#
# Expected: its discovery document lists `client_secret_basic`, the client's name and secret in the header Authorization
#   (OpenID Connect Core 1.0, section 9), so the token endpoint takes them there.
# Seen: it reads them from the form alone, as `client_secret_post` has it, and answers 400 to the header. A client that takes
#   the first way that the document lists, or the one that the standard presumes, cannot log in.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/oauth2-proxy/mockoidc"
)

func main() {
	provider, err := mockoidc.Run()
	if err != nil {
		panic(err)
	}
	answer, err := http.Get(provider.DiscoveryEndpoint())
	if err != nil {
		panic(err)
	}
	var document map[string]any
	json.NewDecoder(answer.Body).Decode(&document)
	fmt.Println("announced", document["token_endpoint_auth_methods_supported"])

	for _, way := range []string{"client_secret_basic", "client_secret_post"} {
		session, err := provider.SessionStore.NewSession("openid", "", mockoidc.DefaultUser(), "", "")
		if err != nil {
			panic(err)
		}
		form := url.Values{"grant_type": {"authorization_code"}, "code": {session.SessionID}}
		if way == "client_secret_post" {
			form.Set("client_id", provider.ClientID)
			form.Set("client_secret", provider.ClientSecret)
		}
		request, _ := http.NewRequest("POST", provider.TokenEndpoint(), strings.NewReader(form.Encode()))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if way == "client_secret_basic" {
			request.SetBasicAuth(provider.ClientID, provider.ClientSecret)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		fmt.Println(way, answer.StatusCode)
	}
}
GO
export GOPATH="$work/go" GOFLAGS=-mod=mod
{ go mod init seen && go get github.com/oauth2-proxy/mockoidc@v0.0.0-20261103160011-e06ed0b7cb7f; } 2>"$work/errors" || { cat "$work/errors"; exit 1; }
go run . >"$work/output"
cat "$work/output"
diff "$work/output" - <<'SEEN'
announced [client_secret_basic client_secret_post]
client_secret_basic 400
client_secret_post 200
SEEN
