package rpc_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/rpc"
	"github.com/oino-dev/oinod/session"
)

// A process serves its standard streams like this.
func ExampleServe() {
	events := new(rpc.Events)
	registry, err := session.OpenRegistry(session.Options{
		Dir: os.TempDir() + "/oino-example", Limits: session.DefaultLimits, App: "example", Event: events.Send,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = rpc.Serve(context.Background(), rpc.Config{
		In:       strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}` + "\n"),
		Out:      os.Stdout,
		Registry: registry,
		Forker:   fork.New(registry),
		Events:   events,
		Log:      zerolog.Nop(),
		Limits:   session.DefaultLimits,
	})
	fmt.Println(err, registry.Shutdown(context.Background()))
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"sessions":[]}}
	// <nil> <nil>
}
