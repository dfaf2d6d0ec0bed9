package workspace

import (
	"os"
	"path/filepath"
	"strings"
)

// gitEnv is an environment in which nothing but the repository itself tells
// git what to do. empty is a directory with nothing in it.
func gitEnv(empty string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	none := filepath.Join(empty, "none")
	return append(env, "GIT_CONFIG_GLOBAL="+none, "GIT_CONFIG_SYSTEM="+none, "GIT_CONFIG_NOSYSTEM=1", "HOME="+empty, "XDG_CONFIG_HOME="+empty,
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
}
