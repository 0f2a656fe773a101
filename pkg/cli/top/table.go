// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/output"
	"github.com/kubeannex/annex/pkg/preflight"
)

// none stands for an empty cell.
const none = "-"

// show prints the table, and below it what it is a part of.
func (o *Options) show(list *kubeannexv1alpha1.ListProfileList, matching int) error {
	if matching == 0 {
		of := ""
		if o.Filter != "" {
			of = " of " + o.Filter
		}
		fmt.Fprintf(o.ErrOut, "No reads%s were seen by %s: gets, lists and watches of custom resources are counted.\n", of, o.replica(list))
		return nil
	}
	headings := []string{"CLIENT", "USER", "VERB", "RESOURCE", "SELECTOR", "SOURCE", "INDEX", "COUNT", "SCANNED", "RETURNED", "BYTES", "LAST"}
	if o.Output.Format == output.Wide {
		headings = append(headings, "FIRST", "FAILED", "VERSION", "CLIENT VERSION", "SCANNED PER RETURNED")
	}
	var rows [][]string
	for i := range list.Items {
		rows = append(rows, o.row(&list.Items[i]))
	}
	if err := output.Table(o.Out, headings, rows); err != nil {
		return err
	}
	dropped := ""
	if list.Dropped > 0 {
		dropped = fmt.Sprintf(" Lines dropped to make room, added up as (others): %s.", humanize.Comma(list.Dropped))
	}
	_, err := fmt.Fprintf(o.Out, "\n%d of %d lines of %s.%s\n", len(rows), matching, o.replica(list), dropped)
	return err
}

// replica names the processes whose reads are shown and since when they count.
func (o *Options) replica(list *kubeannexv1alpha1.ListProfileList) string {
	text, verb := "annex", "counts"
	switch names := replicas(list); len(names) {
	case 0:
	case 1:
		text = "replica " + names[0]
	default:
		text, verb = fmt.Sprintf("%d replicas (%s)", len(names), strings.Join(names, ", ")), "count"
	}
	if list.Since.IsZero() {
		return text
	}
	return fmt.Sprintf("%s, which %s since %s (%s)", text, verb, list.Since.UTC().Format(time.RFC3339), o.age(list.Since))
}

// replicas are the names of the processes whose reads are shown. A server that knows
// only its own names no others.
func replicas(list *kubeannexv1alpha1.ListProfileList) []string {
	if len(list.Replicas) == 0 && list.Replica != "" {
		return []string{list.Replica}
	}
	return list.Replicas
}

func (o *Options) row(profile *kubeannexv1alpha1.ListProfile) []string {
	r := &profile.Profile
	scanned, returned := humanize.Comma(r.Scanned), humanize.Comma(r.Returned)
	if r.Verb == "watch" {
		// They are not counted.
		scanned, returned = none, none
	}
	cells := []string{
		r.Client, r.User, r.Verb, name(r), r.Selector, string(r.Source), r.Index,
		humanize.Comma(r.Count), scanned, returned, preflight.FormatBytes(r.Bytes), o.age(r.LastSeen),
	}
	if o.Output.Format == output.Wide {
		cells = append(cells, o.age(profile.CreationTimestamp), humanize.Comma(r.Failed), r.Version, r.ClientVersion, waste(r))
	}
	for i := range cells {
		cells[i] = cmp.Or(cells[i], none)
	}
	return cells
}

// waste is the number of objects that were looked at for each one returned.
func waste(r *kubeannexv1alpha1.ListProfileRow) string {
	if r.Scanned == 0 {
		return none
	}
	return humanize.CommafWithDigits(float64(r.Scanned)/float64(max(r.Returned, 1)), 1)
}

func (o *Options) age(t metav1.Time) string {
	if t.IsZero() {
		return none
	}
	return duration.HumanDuration(o.Clock.Since(t.Time))
}
