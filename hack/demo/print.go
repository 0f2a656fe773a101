// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubeannex/annex/test/env"
)

const (
	mebibyte = 1 << 20
	// kubectlGrace is how long kubectl may take to end after it was interrupted.
	kubectlGrace = 5 * time.Second
)

// heading begins an act.
func (d *demo) heading(title string) {
	d.acts++
	fmt.Fprintf(d.out, "\n%d. %s\n%s\n", d.acts, title, strings.Repeat("-", len(title)+3))
}

func (d *demo) sayf(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}

// table prints rows below their titles.
func (d *demo) table(rows ...[]string) error {
	w := tabwriter.NewWriter(d.out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	return w.Flush()
}

func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mebibyte) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// kubectl is the real kubectl as an administrator of the cluster, with the plugin in its path.
type kubectl struct {
	program string
	env     []string
}

func (d *demo) newKubectl() (*kubectl, error) {
	root, err := env.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	program, err := d.env.Program("kubectl")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := d.host.Kubeconfig("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	return &kubectl{program: program, env: []string{
		"PATH=" + filepath.Join(root, "_output", "bin"), "HOME=" + d.dir, "KUBECONFIG=" + kubeconfig,
	}}, nil
}

// run shows a command, runs it and shows its output, progress included, while it
// runs. A command that fails is an error.
func (d *demo) run(ctx context.Context, args ...string) error {
	d.sayf("$ kubectl %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, d.kubectl.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.kubectl.env, d.out, d.out
	cmd.WaitDelay = kubectlGrace
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
