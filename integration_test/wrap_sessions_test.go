//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sessions that are deleted and forked by a client which has not opened them.

// talkToThree is talkTo with three turns. rewound: the last two were rewound,
// and another one followed.
func talkToThree(t *testing.T, rewound bool) *talking {
	t.Helper()
	k := talkTo(t)
	k.three()
	if rewound {
		k.rewind(1)
		k.turn(k.s, "say FOUR")
	}
	return k
}

func TestWrapDeletesASessionThatIsNotOpen(t *testing.T) {
	t.Parallel()
	for _, rewound := range []bool{false, true} {
		t.Run(fmt.Sprint("rewound ", rewound), func(t *testing.T) {
			t.Parallel()
			k := talkToThree(t, rewound)
			now := []string{k.s}
			if rewound {
				prompts := k.asked("session/prompt")
				now = []string{field[string](t, json.RawMessage(prompts[len(prompts)-1]), "sessionId"), k.s}
			}
			other := k.newSession(k.work)
			k.turn(other, "say OTHER", "write o.txt x")
			require.Len(t, k.logs(), 2)
			require.Zero(t, k.exit())
			k.start()
			k.call("session/delete", map[string]any{"sessionId": k.s})
			require.Equal(t, "session_not_found", k.refused("_oino/checkpoints", map[string]any{"sessionId": k.s}).kind())
			require.Zero(t, k.exit())
			require.Len(t, k.logs(), 1)
			var deleted []string
			for _, params := range k.asked("session/delete") {
				deleted = append(deleted, field[string](t, json.RawMessage(params), "sessionId"))
			}
			require.Equal(t, now, deleted)
		})
	}
}

// logs are the logs of all sessions.
func (k *talking) logs() []string {
	all, err := filepath.Glob(filepath.Join(k.agent, "sessions", "*", "*.jsonl"))
	require.NoError(k.t, err)
	return all
}

// In which directory it is nobody says: of two sessions of one name none is
// taken.
func TestWrapDeletesNoSessionThatMayBeAnother(t *testing.T) {
	t.Parallel()
	k := talkTo(t)
	k.turn(k.s, "say ONE", "write a.txt x")
	require.Zero(t, k.exit())
	k.start()
	k.call("session/load", map[string]any{"sessionId": k.s, "cwd": t.TempDir(), "mcpServers": []any{}})
	k.turn(k.s, "say TWO")
	require.Zero(t, k.exit())
	require.Len(t, k.logs(), 2)
	k.start()
	k.call("session/delete", map[string]any{"sessionId": k.s})
	require.Zero(t, k.exit())
	require.Len(t, k.logs(), 2)
}

func TestWrapForksASessionThatIsNotOpen(t *testing.T) {
	t.Parallel()
	for _, rewound := range []bool{false, true} {
		t.Run(fmt.Sprint("rewound ", rewound), func(t *testing.T) {
			t.Parallel()
			k := talkToThree(t, rewound)
			require.Zero(t, k.exit())
			k.start()
			fork := field[string](t, k.call("session/fork", map[string]any{"sessionId": k.s, "cwd": k.work, "mcpServers": []any{}}), "sessionId")
			require.Len(t, k.entries(fork), map[bool]int{false: 3, true: 2}[rewound])
			told := k.told(fork)
			require.Contains(t, told, "ONE")
			if rewound {
				require.Contains(t, told, "FOUR")
				require.NotContains(t, told, "THREE")
			} else {
				require.Contains(t, told, "THREE")
				require.NotContains(t, told, recapped)
			}
			require.Len(t, k.asked("session/fork"), 1)
		})
	}
}

// A fork by rewind is set as its source was, and is told which files were put
// back, by whatever process.
func TestWrapForkedByRewindIsTold(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			k := talkTo(t)
			k.call("session/set_mode", map[string]any{"sessionId": k.s, "modeId": "careful"})
			k.three()
			k.restart()
			fork := field[string](t, k.rewindTo(k.s, 1, map[string]any{"conversation": "fork"}), "sessionId")
			require.Contains(t, k.asked("session/set_mode")[1], "careful")
			if restart {
				require.Zero(t, k.exit())
				k.start()
				k.load(fork)
			}
			told := k.told(fork)
			require.Equal(t, 1, strings.Count(told, k.path("b.txt")))
			require.Contains(t, told, "say ONE")
			require.NotContains(t, told, "TWO")
			require.Equal(t, 1, strings.Count(k.told(fork), k.path("b.txt")), "once")
		})
	}
}

// What is redone after a restart goes on where the agent has it.
func TestWrapRedoAfterARestart(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprint("restart again ", again, ", lost ", loses), func(t *testing.T) {
				t.Parallel()
				k := talkTo(t)
				k.three()
				k.rewind(1)
				k.restart()
				require.Len(t, k.asked("session/new"), 2)
				k.call("_oino/redo", map[string]any{"sessionId": k.s})
				require.Equal(t, "two\n", k.read("b.txt"))
				if loses {
					k.options = append(k.options, "loses")
				}
				switch {
				case again:
					k.restart()
					if loads := k.asked("session/load"); !loses {
						require.Equal(t, k.s, field[string](t, json.RawMessage(loads[len(loads)-1]), "sessionId"), "it is opened with that")
					}
				case loses:
					return // it is the same process
				}
				told := k.told(k.s)
				require.Contains(t, told, "THREE")
				require.Equal(t, loses, strings.Contains(told, recapped))
				k.turn(k.s, "say AFTER")
				require.Contains(t, k.told(k.s), "AFTER")
			})
		}
	}
}

// Of the agent's sessions that a conversation was in the list has just one.
func TestWrapListsAConversationOnce(t *testing.T) {
	t.Parallel()
	k := talkTo(t)
	k.three()
	for range 2 {
		k.rewind(1)
		k.turn(k.s, "say AGAIN")
	}
	require.Len(t, k.asked("session/new"), 3)
	listed := field[[]any](t, k.call("session/list", map[string]any{}), "sessions")
	require.Len(t, listed, 1)
	require.Equal(t, k.s, listed[0].(map[string]any)["sessionId"])
}
