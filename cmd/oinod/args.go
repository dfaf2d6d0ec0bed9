package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// What a command line gets wrong is told in one line that names it and says
// what would be right, or where that stands.

// usage is a mistake in the command line of cmd.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf("%s (see %s --help)", fmt.Sprintf(format, args...), cmd.CommandPath())
}

// noArgs are the arguments of a command that takes none; what stands where a
// subcommand could is none that there is.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasAvailableSubCommands():
		return unknown(cmd, args[0])
	}
	return usage(cmd, "%s takes no arguments, but got %s", nameOf(cmd), quoted(args))
}

// oneArg is the argument of a command that takes one: name is what usage calls
// it, and what tells what it is and where to find one.
func oneArg(name, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return usage(cmd, "%s needs %s, %s", nameOf(cmd), name, what)
		case 1:
			return nil
		}
		return usage(cmd, "%s takes one %s, but got %s", nameOf(cmd), name, quoted(args))
	}
}

// nameOf is what is typed after "oinod" for cmd.
func nameOf(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

func quoted(args []string) string {
	all := make([]string, len(args))
	for i, a := range args {
		all[i] = fmt.Sprintf("%q", a)
	}
	return strings.Join(all, " ")
}

// unknown is a word that is no subcommand of cmd.
func unknown(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2
	like := ""
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		like = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage(cmd, "there is no command %q%s", strings.TrimSpace(nameOf(cmd)+" "+word), like)
}

// group makes cmd a command that does nothing but by its subcommands.
func group(cmd *cobra.Command) {
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		slices.Sort(names)
		return usage(cmd, "%s needs to know which: %s", nameOf(cmd), strings.Join(names, ", "))
	}
}

// helpCommand is cobra's, but that it refuses what it knows no help for.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say more about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && about.HasAvailableSubCommands() {
				return unknown(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range about.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), start) {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
