// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newCompletionCommand replaces cobra's own: kubectl completes plugins in
// another way than programs that are called by their own name.
func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Write a completion script for bash, zsh, fish or powershell",
		Long: `Write a completion script for bash, zsh, fish or powershell.

The script is for the name kubectl-annex. For "kubectl annex", kubectl's own
completion asks a program named kubectl_complete-annex, which must be on the PATH:

  #!/bin/sh
  exec kubectl annex __complete "$@"`,
		Example: `  # Complete "kubectl annex ...", given that kubectl completes already
  printf '#!/bin/sh\nexec kubectl annex __complete "$@"\n' > ~/.local/bin/kubectl_complete-annex
  chmod +x ~/.local/bin/kubectl_complete-annex

  # Complete "kubectl-annex ..." in this bash
  source <(kubectl annex completion bash)`,
		ValidArgs: []cobra.Completion{"bash", "zsh", "fish", "powershell"},
		Args:      shell,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}

func shell(cmd *cobra.Command, args []string) error {
	if err := cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(cmd, args); err != nil {
		return fmt.Errorf("name one shell: bash, zsh, fish or powershell")
	}
	return nil
}
