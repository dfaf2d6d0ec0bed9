// Package protocol is what oinod says on the wire: the Agent Client Protocol
// (ACP), version 1, as far as oinod reads or writes it, and the methods of its
// own that start with "_oino/".
//
// The ACP part is transcribed by hand from schema.v1.json of the protocol's
// repository (and from schema.v1.unstable.json for session/fork), message by
// message, with the names of the schema's fields. A field that oinod neither
// reads nor writes is left out: what comes in is decoded leniently (unknown
// fields are ignored) but typed strictly (a field of another JSON type than
// the schema's is an error that names it), and what goes out carries nothing
// that an older client would have to understand. Messages of a conversation
// are kept as the bytes that came, never decoded and encoded again: see Block.
//
// The types know nothing of the server. Each kind of params can check itself
// for what the JSON types alone do not say; see Decode. Lists in results are
// never null.
package protocol
