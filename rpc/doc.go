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
package rpc
