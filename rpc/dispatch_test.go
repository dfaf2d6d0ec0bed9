package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/protocol"
)

func say(word string) func(context.Context, *task) (any, error) {
	return func(context.Context, *task) (any, error) { return word, nil }
}

func req(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func answer(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

const (
	inA = `{"sessionId":"a"}`
	inB = `{"sessionId":"b"}`
)

// Requests of one session wait for each other, those of another session and
// of none do not wait for them.
func TestOrderWithinASessionAndNoneBetweenSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, func(*client) []*method {
			return []*method{{name: "wait", run: g.run}, {name: "say", run: say("said")}, {name: "stats", common: true, run: say("stats")}}
		})
		k.send(req("1", "wait", inA), req("2", "say", inA), req("3", "say", inA), req("4", "say", inB), req("5", "stats", `{}`))
		first, second := k.next(), k.next() // side by side, so either may be first
		require.ElementsMatch(t, []string{answer("4", `"said"`), answer("5", `"stats"`)}, []string{first, second})
		k.quiet()
		g.open <- "done"
		k.want(answer("1", `"done"`), answer("2", `"said"`), answer("3", `"said"`))
		require.NoError(t, k.eof())
	})
}

// What a method tells the client arrives before its answer.
func TestAnAnswerNeverOvertakesItsNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := start(t, func(c *client) []*method {
			return []*method{{name: "tell", run: func(_ context.Context, t *task) (any, error) {
				for i := range 3 {
					c.notify("note", map[string]int{t.key: i})
				}
				t.after = func() { c.notify("after", map[string]string{}) }
				return nil, nil
			}}}
		})
		for id := range 50 {
			k.send(req(fmt.Sprint(id), "tell", inA))
		}
		for id := range 50 {
			for i := range 3 {
				k.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"note","params":{"%d":%d}}`, id, i))
			}
			k.want(answer(fmt.Sprint(id), "null"), `{"jsonrpc":"2.0","method":"after","params":{}}`)
		}
		require.NoError(t, k.eof())
	})
}

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + id + `}}`
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32800,"message":"the client cancelled the request"}}`
}

// A cancel passes the queue, and reaches what runs and what waits; the same
// id in another JSON type is another request.
func TestCancelPassesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g))
		k.send(req("1", "wait", inA), req(`"1"`, "wait", inA), req("2", "wait", inA), req("3", "prompt", inA))
		k.send(cancelOf(`"1"`)) // waits: answered at once
		k.want(cancelled(`"1"`))
		k.send(cancelOf("99"), cancelOf("null"), cancelOf(`{}`), `{"jsonrpc":"2.0","method":"$/cancel_request"}`)
		k.quiet()
		k.send(cancelOf("1")) // runs
		k.want(cancelled("1"))
		synctest.Wait()
		require.Equal(t, []string{"1", "2"}, g.arrived())

		k.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"b"}}`)
		k.quiet()
		k.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"a"}}`) // a prompt that waits
		k.want(answer("3", `{"stopReason":"cancelled"}`))
		k.quiet() // no prompt, so not ended
		g.open <- "done"
		k.want(answer("2", `"done"`))

		k.send(req("4", "prompt", inA))
		k.quiet() // it runs
		k.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"a"}}`)
		k.want(answer("4", `{"stopReason":"cancelled"}`))
		k.send(req("5", "prompt", inA), cancelOf("5"))
		k.want(cancelled("5"))

		k.send(req("6", "$/cancel_request", `{"requestId":1}`)) // as a request it has an answer
		k.want(answer("6", "{}"))
		require.NoError(t, k.eof())
	})
}

// withCancels are methods around g that can be cancelled.
func withCancels(g *gate) func(*client) []*method {
	return func(c *client) []*method {
		s := &server{client: c}
		return []*method{
			{name: "wait", run: g.run},
			{name: "prompt", run: g.run, prompt: true},
			{name: "read", run: say("read"), reads: true},
			{name: protocol.SessionCancel, common: true, first: s.cancelTurn, run: nothing},
			{name: protocol.CancelRequest, common: true, first: s.cancelRequest, run: nothing},
			{name: "ask", run: func(ctx context.Context, t *task) (any, error) {
				var word string
				err := c.ask(ctx, t, time.Minute, "question", map[string]string{}, &word)
				return word, err
			}},
		}
	}
}

// Two requests in hand may have one id; each is answered, and a cancel means both.
func TestTheSameIDTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g))
		k.send(req("7", "wait", inA), req("7", "wait", inB), req("7", "read", inB))
		synctest.Wait()
		g.open <- "x"
		g.open <- "x"
		got := []string{k.next(), k.next(), k.next()} // two sessions, so in any order
		require.ElementsMatch(t, []string{answer("7", `"x"`), answer("7", `"x"`), answer("7", `"read"`)}, got)
		k.send(req("7", "wait", inA), req("7", "wait", inA), cancelOf("7"))
		k.want(cancelled("7"), cancelled("7"))
		require.NoError(t, k.eof())
	})
}

// Waiting requests of a method that takes many are done in one go, up to the
// next of another kind, and answered in order.
func TestConsecutiveRecordsAreOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		var batches [][]string
		k := start(t, func(c *client) []*method {
			return append(withCancels(g)(c), &method{name: "record", runAll: func(tasks []*task) []outcome {
				outcomes := make([]outcome, len(tasks))
				var batch []string
				for i, t := range tasks {
					batch = append(batch, t.key)
					outcomes[i].result = t.key
				}
				if outcomes[0].result == "9" {
					outcomes[0].err = errors.New("no")
				}
				batches = append(batches, batch)
				return outcomes
			}})
		})
		k.send(req("1", "wait", inA), req("2", "record", inA), req("3", "record", inA), req("4", "read", inA),
			req("5", "record", inA), req("6", "record", inA), req("7", "record", inA), cancelOf("6"))
		k.want(cancelled("6"))
		k.send(req("9", "record", inB))
		k.want(`{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"no"}}`)
		g.open <- "go"
		k.want(answer("1", `"go"`), answer("2", `"2"`), answer("3", `"3"`), answer("4", `"read"`), answer("5", `"5"`), answer("7", `"7"`))
		require.Equal(t, [][]string{{"9"}, {"2", "3"}, {"5", "7"}}, batches)
		require.NoError(t, k.eof())
	})
}

// A panic is the request's own misfortune.
func TestAPanicIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := start(t, func(*client) []*method {
			return []*method{
				{name: "boom", run: func(context.Context, *task) (any, error) { panic("boom") }},
				{name: "booms", runAll: func([]*task) []outcome { panic("boom") }},
				{name: "unsayable", run: func(context.Context, *task) (any, error) { return func() {}, nil }},
				{name: "say", run: say("said")},
			}
		})
		bug := `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"oinod met a bug of its own in this request; its log has the details"}}`
		k.send(req("1", "boom", inA), req("2", "booms", inA), req("3", "unsayable", inA), req("4", "say", inA))
		k.want(fmt.Sprintf(bug, 1), fmt.Sprintf(bug, 2),
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"json: unsupported type: func()"}}`, answer("4", `"said"`))
		require.NoError(t, k.eof())
	})
}

// While a request waits for the client, what the client wants to look at
// before it answers passes the queue; what changes something does not.
func TestReadingPassesARequestThatWaitsForTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g))
		k.send(req("0", "wait", inA), req("1", "ask", inA), req("2", "wait", inA), req("3", "read", inA))
		k.quiet() // in order as long as nobody is asked
		g.open <- "go"
		k.want(answer("0", `"go"`))
		first, second := k.next(), k.next()
		require.ElementsMatch(t, []string{`{"jsonrpc":"2.0","id":"oino-1","method":"question","params":{}}`, answer("3", `"read"`)}, []string{first, second})
		k.send(req("4", "read", inA))
		k.want(answer("4", `"read"`))
		k.send(`{"jsonrpc":"2.0","id":"oino-1","result":"yes"}`)
		k.want(answer("1", `"yes"`))
		k.send(req("5", "read", inA))
		k.quiet() // in order again, behind 2
		g.open <- "done"
		k.want(answer("2", `"done"`), answer("5", `"read"`))
		require.NoError(t, k.eof())
	})
}

// What comes of a question: an answer, an error, none in time, none wanted.
func TestAQuestionToTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asker *client
		k := start(t, withCancels(newGate()), func(c *client) { asker = c })
		question := func(n int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":"oino-%d","method":"question","params":{}}`, n)
		}
		k.send(req("1", "ask", inA))
		k.want(question(1))
		k.send(`{"id":null,"error":{"code":-32700,"message":"?"}}`, `{"id":1,"result":"no"}`, `{"id":"oino-9","result":"no"}`, `{"id":-1,"result":1}`)
		k.quiet()
		k.send(`{"id":"oino\u002d1","error":null,"result":"<yes>"}`) // another spelling of the same id
		k.want(answer("1", `"<yes>"`))

		k.send(req("2", "ask", inA))
		k.want(question(2))
		k.send(`{"id":"oino-2","error":{"code":-32601,"message":"not here"}}`)
		k.want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"not here"}}`)

		k.send(req("3", "ask", inA))
		k.want(question(3))
		k.send(`{"id":"oino-3","error":"no object"}`)
		k.want(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"an error that is no JSON-RPC error"}}`)

		k.send(req("4", "ask", inA))
		k.want(question(4))
		<-time.After(time.Minute) // of the bubble's time
		k.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"oino-4"}}`,
			`{"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"the client did not answer within 1m0s"}}`)
		id, forgotten := asker.voice.(connVoice).stream.takeForgotten()
		require.True(t, forgotten)
		require.Equal(t, "oino-4", id)
		k.send(`{"id":"oino-4","result":"too late"}`)

		k.send(req("5", "ask", inA))
		k.want(question(5))
		k.send(cancelOf("5"))
		k.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"oino-5"}}`, cancelled("5"))
		require.NoError(t, k.eof())
	})
}

// The end of the input ends nothing that was taken: it is done and answered.
// Only the client's own words will not come any more.
func TestEOFFinishesTheWorkInHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g))
		k.send(req("1", "wait", inA), req("2", "read", inA), req("3", "ask", inB))
		k.want(`{"jsonrpc":"2.0","id":"oino-1","method":"question","params":{}}`)
		k.in.Close()
		k.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"oino-1"}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the client is gone"}}`)
		k.quiet()
		g.open <- "done"
		k.want(answer("1", `"done"`), answer("2", `"read"`))
		<-k.ended
		require.NoError(t, k.err)
	})
}

// A last line without its line break is a line.
func TestTheLastLineNeedsNoLineBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := start(t, withCancels(newGate()))
		_, err := k.in.Write([]byte(req("1", "read", inA)))
		require.NoError(t, err)
		require.NoError(t, k.eof())
		k.want(answer("1", `"read"`))
	})
}

// SIGTERM is an end of the input that does not wait for the client.
func TestStopFinishesTheWorkInHandAndReadsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g))
		k.send(req("1", "wait", inA), req("2", "wait", inA), req("3", "ask", inB))
		k.want(`{"jsonrpc":"2.0","id":"oino-1","method":"question","params":{}}`)
		k.stop()
		k.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"oino-1"}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the client is gone"}}`)
		g.open <- "one"
		g.open <- "two"
		k.want(answer("1", `"one"`), answer("2", `"two"`))
		<-k.ended
		require.NoError(t, k.err)
		_, err := k.in.Write([]byte(req("4", "read", inA) + "\n")) // whoever is blocked in Read takes it, and ends
		require.NoError(t, err)
		k.quiet()
	})
}

// A client that reads no more ends the process, with the reason.
func TestABrokenOutputEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := start(t, withCancels(newGate()))
		k.out.Close()
		k.send(req("1", "read", inA))
		<-k.ended
		require.ErrorContains(t, k.err, "writing to the client")
		k.in.Close()
	})
}

// Methods that nobody knows, and params without a session.
func TestUnknownAndUnnamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := start(t, withCancels(newGate()))
		k.send(req("1", "nope", "{}"), `{"jsonrpc":"2.0","method":"_oino/unknown_note","params":{}}`)
		k.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"there is no method \"nope\""}}`)
		for i, params := range []string{`{}`, `[]`, `"a"`, `{"sessionId":5}`, `null`} {
			k.send(req(fmt.Sprint(i), "read", params))
			k.want(answer(fmt.Sprint(i), `"read"`))
		}
		k.send(`{"jsonrpc":"2.0","method":"read","params":{"sessionId":"a"}}`) // done, and not answered
		k.quiet()
		require.NoError(t, k.eof())
	})
}

// A queue is there as long as it holds something.
func TestNoQueueIsLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tasks *dispatcher
		k := start(t, withCancels(newGate()), func(c *client) { tasks = c.tasks })
		for i := range 1000 {
			k.send(req(fmt.Sprint(i), "read", fmt.Sprintf(`{"sessionId":"s%d"}`, i)))
		}
		synctest.Wait()
		tasks.update(func(st *dispatchState) {
			require.Empty(t, st.queues)
			require.Empty(t, st.byID)
			require.Zero(t, tasks.room.requests)
			require.Zero(t, tasks.room.bytes)
		})
		require.NoError(t, k.eof())
	})
}

// A flood waits in the client's own pipe as long as work gets done.
func TestAFloodWaitsForRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g), func(c *client) { c.tasks.room.maxRequests = 3 })
		sent := 0
		go func() {
			for i := range 10 {
				_, _ = k.in.Write([]byte(req(fmt.Sprint(i), "wait", inA) + "\n"))
				sent++
			}
		}()
		synctest.Wait()
		require.LessOrEqual(t, sent, 5) // three taken, one in the reader's hand
		for i := range 10 {
			g.open <- "done"
			k.want(answer(fmt.Sprint(i), `"done"`))
		}
		require.NoError(t, k.eof())
	})
}

const tooMany = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"too many requests are waiting: send it again when some are answered","data":{"kind":"too_many_requests"}}}`

// While the client is asked, or nothing gets done, the reader goes on: the
// answer or the cancel may be behind the flood.
func TestAFloodDoesNotDrownTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g), func(c *client) { c.tasks.room.maxRequests = 3 })
		k.send(req("1", "ask", inA))
		k.want(`{"jsonrpc":"2.0","id":"oino-1","method":"question","params":{}}`)
		begun := time.Now()
		k.send(req("2", "wait", inA), req("3", "wait", inA), req("4", "wait", inA), `{"jsonrpc":"2.0","method":"wait"}`)
		k.want(fmt.Sprintf(tooMany, 4))
		require.Zero(t, time.Since(begun)) // a client that is asked is not kept waiting
		k.send(`{"id":"oino-1","result":"yes"}`)
		k.want(answer("1", `"yes"`))

		k.send(req("5", "wait", inA)) // 2, 3 and 5 fill the room
		go k.send(req("6", "wait", inA), cancelOf("3"))
		k.quiet() // 6 waits for room, and the cancel behind it
		<-time.After(patience)
		first, second := k.next(), k.next() // the cancel is answered beside the reader
		require.ElementsMatch(t, []string{fmt.Sprintf(tooMany, 6), cancelled("3")}, []string{first, second})

		k.send(req("7", "wait", inA)) // 2, 5 and 7; the cancel has made room, so patience begins anew
		go k.send(req("8", "wait", inA))
		k.quiet()
		for _, id := range []string{"2", "5", "7", "8"} {
			g.open <- "done"
			k.want(answer(id, `"done"`))
		}
		require.NoError(t, k.eof())
	})
}

// Bytes are counted as well, and one large message alone always passes.
func TestAFloodOfBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		k := start(t, withCancels(g), func(c *client) { c.tasks.room.maxBytes = 1000 })
		large := func(id string) string {
			return req(id, "wait", `{"sessionId":"a","x":"`+strings.Repeat("x", 2000)+`"}`)
		}
		k.send(large("1"))
		go k.send(large("2"))
		k.quiet()
		g.open <- "done"
		k.want(answer("1", `"done"`))
		g.open <- "done"
		k.want(answer("2", `"done"`))
		require.NoError(t, k.eof())
	})
}
