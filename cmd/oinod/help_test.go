package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestEveryCommandIsWrittenDown: go doc -cmd has each command and flag, the
// README each command.
func TestEveryCommandIsWrittenDown(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(data)
	}
	doc := regexp.MustCompile(`(?s)\A.*?\npackage `).FindString(read("main.go"))
	readme := read("../../README.md")
	name := regexp.MustCompile(`--[a-z-]+`)
	flags := func(usages string) {
		for _, flag := range name.FindAllString(usages, -1) {
			require.Contains(t, doc, flag, "in the doc comment")
		}
	}
	p := new(process)
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() == "help" || sub.HasParent() && sub.Parent().Name() == "completion" {
				continue
			}
			require.Contains(t, doc, "\toinod "+nameOf(sub), "in the doc comment")
			require.Contains(t, readme, "`oinod "+nameOf(sub), "in the README")
			flags(sub.LocalNonPersistentFlags().FlagUsages())
			each(sub)
		}
	}
	root := p.command()
	each(root)
	flags(root.PersistentFlags().FlagUsages())
}
