// Package rpc is the side of oinod that faces a client: JSON-RPC 2.0 over two
// byte streams, one object a line. It hides who is on the other end: below it,
// nobody knows of requests, ids or codes. It decides nothing about sessions
// and files; it reads params, calls the packages below, and says what they
// answered.
//
// # The way of a message
//
//	In ──▶ lineReader ──▶ stream ──▶ jsonrpc2.Conn ──▶ dispatcher ──▶ method
//	       limits         parse,      Handle            queues         session, fork
//	                      ids                              │
//	Out ◀─ lineWriter ◀── stream ◀── jsonrpc2.Conn ◀───────┴── answers, notifications,
//	       one Write                                           questions to the client
//
// jsonrpc2.Conn matches answers to questions, and is shown envelopes only: it
// would turn id -4 into another number, close the connection at a line it does
// not understand, and encode every message again with its < and > escaped. So
// stream checks a line itself, answers it if it is no message, and gives Conn
// the method and a number of its own in the place of the id; Conn's hooks
// OnRecv and OnSend put the params, results and ids back, byte for byte.
//
// # Threads and order
//
// One goroutine reads; it never runs a method and never waits for one. Each
// session has a queue, worked off by one goroutine while it holds anything:
// requests of a session run in the order in which they came, sessions run side
// by side, and requests that belong to no session (initialize, session/new,
// session/list, _oino/stats) wait for none of them. Consecutive waiting
// _oino/record requests are done in one go, so that a pipelining client pays
// for one sync instead of hundreds.
//
// An answer is written by the goroutine that ran the method, after what the
// method told the client: it never overtakes its notifications.
//
// Two things pass a queue. A cancel ($/cancel_request, session/cancel) is
// carried out by the reader: it ends the context of what runs, and answers
// what waits. And while a request waits for the client (a hook, a menu),
// methods that only read run beside it, even those that came after requests
// which still wait: the client may need them to find its answer. They see the
// state before.
//
// What waits is bounded; see backlog for what happens at the bound.
//
// # The end
//
// At the end of the input, or when its context ends, Serve takes nothing more,
// lets everything in hand be finished and answered, and returns. Questions to
// the client are given up at once, since there will be no answer: a fork that
// was waiting for one is cancelled. jsonrpc2.Conn sends nothing after a failed
// read, so ReadObject returns io.EOF only when all of that is done.
//
// # Trouble
//
// A line that is no request is answered with what is wrong with it, by its id
// where that can be read; a method that panics is answered with an error. In
// either case the next line is served as ever. What is wrong with a request
// becomes a code and a kind in one place, wireError.
//
// # Wrap
//
// Wrap is a proxy: a client on one side, an agent that we have started on the
// other. Methods and commands are those of Serve; what differs is asked of the
// host (host.go): where a session comes from, and what else moves with it.
//
//	client ──▶ readClient ──▶ clientSays ─┬─ ours ──▶ dispatcher ──▶ method
//	                                      ├─ a prompt ──▶ dispatcher ──▶ keep, then pass on
//	                                      └─ all else ──────────────────▶ agentOut ──▶ agent
//	client ◀── clientOut ◀─┬──────────────── all else ─┬─ agentSays ◀── readAgent ◀── agent
//	                       └── lane: keep, then let go ─┘
//
// What is passed on is the line that came, byte for byte. A line is read where
// it lies (splice.go) and only as far as it concerns us; one that is no JSON
// passes as well. Three kinds of lines get some of their bytes exchanged: the
// answer to initialize, which says what we offer; the list of commands, to
// which ours are added; and the ids of sessions that have two names.
//
// Ids are kept as they were spelled, for each direction apart. Our own
// requests to either side have ids with a prefix that is made anew for each
// process, so that several proxies can stand behind each other; answers to
// them go no further.
//
// Order. One goroutine reads each side. What the client says of a session is
// passed on at once, unless something of that session is still in the
// dispatcher's queue, behind which it goes then; a cancel passes all that,
// but never the prompt that it is about. What the agent says of a session
// waits in a lane (lane.go) while something before it has to be kept; other
// sessions do not wait. Whoever reads waits where too much is held, and the
// other side with it: no more is in memory than one line of each side, the
// queues (backlog.go), the lanes, and what was heard of a turn (heard.go).
//
// Turns. A turn is a prompt that the agent has not answered (in version 2: that
// it was not idle after). The prompt is held until the session has what is
// there now, the answer until it has what was left (proxy_turns.go). Agents
// write files themselves, before they say so, and after the end; so what they
// say of paths (hints.go) only adds to what the session sees itself. Two things
// do stop an agent: a file that it has the client write, and a permission; both
// are let go when the path they name was looked at. Nothing that a tool call
// says outside of a turn counts: it is a replay.
//
// Sessions. Each of the agent's has one of ours, found again by the agent's
// name, the directory, and what the client calls it (session.Wrapped). Most
// are called the same on both sides. A conversation that was rewound goes on,
// with the next prompt, where the agent has it: in its session, if it can go
// back in that; in a fork of it, if it can make one that ends there
// (proxy_rewind.go; what it offers, adverts.go; how it is told where,
// anchors.go); else in a new session, which with its first prompt is told what
// was kept (proxy_conversation.go; what the client opens, proxy_open.go; how a
// session is set, settings.go). The agent never has both, its own messages
// and a recap of them. The client keeps its name for the session, and names are
// exchanged in both directions. What the agent still says in the session that was
// left goes nowhere, and is answered by us (proxy_sessions.go); it is remembered
// for a redo, and deleted with the conversation.
//
// In a proxy chain there is one stream, to the conductor. It is made two before
// anything else (chain.go), and the agent is somebody else's to start and end.
//
// The end. When the client ends, the agent's input does, once it has all that
// was held; it has some seconds to end, then its process group is ended. When
// the agent ends, turns that run are ended, what it left unanswered is
// answered with an error, and its exit code is ours.
package rpc
