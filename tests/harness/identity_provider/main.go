// An identity provider with OpenID Connect: prints its issuer and its client's name and secret, and serves until its input ends.
// Its only argument is how long access tokens are good for, as of Go's time.ParseDuration.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/oauth2-proxy/mockoidc"
)

func main() {
	provider, err := mockoidc.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	if provider.AccessTTL, err = time.ParseDuration(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	if err = provider.Start(listener, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(provider.Issuer(), provider.ClientID, provider.ClientSecret)
	io.Copy(io.Discard, os.Stdin)
}
