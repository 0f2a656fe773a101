// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output prints what the commands of the plugin have to say.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// The formats beside the one for people, which is "". Wide is for people too,
// with more columns, where a command has them.
const (
	JSON = "json"
	YAML = "yaml"
	Wide = "wide"
)

// Flag is the flag --output.
type Flag struct {
	// Format is "" or one of the constants.
	Format string
	// HasWide says that the command knows the format wide.
	HasWide bool
}

// AddFlag registers the flag.
func (f *Flag) AddFlag(cmd *cobra.Command) {
	usage := fmt.Sprintf("Output format, one of: %s. Without it a text for people is printed.", strings.Join(f.formats(), ", "))
	cmd.Flags().StringVarP(&f.Format, "output", "o", f.Format, usage)
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.formats(), cobra.ShellCompDirectiveNoFileComp))
}

func (f *Flag) formats() []string {
	if f.HasWide {
		return []string{JSON, YAML, Wide}
	}
	return []string{JSON, YAML}
}

// Validate refuses formats that are unknown.
func (f *Flag) Validate() error {
	if f.Format == "" || slices.Contains(f.formats(), f.Format) {
		return nil
	}
	return fmt.Errorf("--output=%s is not a format: use %s", f.Format, strings.Join(f.formats(), " or "))
}

// ForPeople reports whether no format for programs was asked for.
func (f *Flag) ForPeople() bool { return f.Format == "" || f.Format == Wide }

// Print writes an object in the format that was asked for, and nothing for people.
func (f *Flag) Print(out io.Writer, object any) error {
	if f.ForPeople() {
		return nil
	}
	var encoded []byte
	var err error
	if f.Format == JSON {
		encoded, err = json.MarshalIndent(object, "", "    ")
		encoded = append(encoded, '\n')
	} else {
		encoded, err = yaml.Marshal(object)
	}
	if err != nil {
		return fmt.Errorf("printing as %s: %w", f.Format, err)
	}
	_, err = out.Write(encoded)
	return err
}

// Group returns a copy of an AnnexedGroup as it is to be printed: with its kind,
// which typed clients drop, and without managed fields.
func Group(group *kubeannexv1alpha1.AnnexedGroup) *kubeannexv1alpha1.AnnexedGroup {
	group = group.DeepCopy()
	group.SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("AnnexedGroup"))
	group.ManagedFields = nil
	return group
}

// Table writes rows below headings, in columns.
func Table(out io.Writer, headings []string, rows [][]string) error {
	writer := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		if _, err := fmt.Fprintln(writer, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return writer.Flush()
}
