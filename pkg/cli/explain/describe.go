// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/output"
	"github.com/kubeannex/annex/pkg/preflight"
)

// absent stands for a figure that is not known while the one beside it is.
const absent = "-"

// describe prints an answer for people.
func (o *Options) describe(review *kubeannexv1alpha1.ListReview) error {
	status := &review.Status
	if path := cmp.Or(status.Path, review.Spec.Path); path != "" {
		fmt.Fprintf(o.Out, "GET %s\n\n", path)
	}
	facts := [][]string{{"Served by", servedBy(status)}}
	if status.Explanation != "" {
		facts = append(facts, []string{"Why", client.OneLine(status.Explanation)})
	}
	if index := indexOf(status); index != "" {
		facts = append(facts, []string{"Index", index})
	}
	if status.LimitIgnored {
		facts = append(facts, []string{"Limit", "ignored: the answer is not divided into pages"})
	}
	if err := output.Table(o.Out, facts[0], facts[1:]); err != nil {
		return err
	}
	if headings, rows := costs(status.Estimate, status.Actual); len(rows) > 0 {
		fmt.Fprintln(o.Out)
		if err := output.Table(o.Out, headings, rows); err != nil {
			return err
		}
	}
	var advice []string
	for _, a := range status.Advice {
		advice = append(advice, fmt.Sprintf("%s (%s)", client.OneLine(a.Message), a.Reason))
	}
	o.bullets("Advice", advice)
	o.bullets("Not known", status.Unknown)
	return nil
}

// bullets prints a list below a title, unless it is empty.
func (o *Options) bullets(title string, texts []string) {
	if len(texts) == 0 {
		return
	}
	fmt.Fprintf(o.Out, "\n%s\n", title)
	for _, text := range texts {
		fmt.Fprintf(o.Out, "  * %s\n", client.OneLine(text))
	}
}

func servedBy(status *kubeannexv1alpha1.ListReviewStatus) string {
	server := "annex"
	if status.Server == kubeannexv1alpha1.ListServerHost {
		server = "kube-apiserver"
		if status.ServerVersion != "" {
			server += " " + status.ServerVersion
		}
	}
	source := "from cache or etcd, not known which"
	switch status.Source {
	case kubeannexv1alpha1.ListSourceCache:
		source = "from the watch cache"
	case kubeannexv1alpha1.ListSourceEtcd:
		source = "from etcd"
	}
	text := server + ", " + source
	if status.Rule != "" {
		text += " (" + status.Rule + ")"
	}
	return text
}

// indexOf is empty where a missing index says nothing: other servers do not tell, and annex does
// not tell who may list only a part, whom it does not tell the total either.
func indexOf(status *kubeannexv1alpha1.ListReviewStatus) string {
	told := status.Server != kubeannexv1alpha1.ListServerHost && status.Estimate != nil && status.Estimate.Total != nil
	if status.Index == "" && told {
		return "none"
	}
	return status.Index
}

// costs puts what is known of an estimate and of real figures side by side.
func costs(estimate, actual *kubeannexv1alpha1.ListCost) (headings []string, rows [][]string) {
	headings = []string{"", "ESTIMATE", "ACTUAL"}
	if actual == nil {
		headings, actual = headings[:2], &kubeannexv1alpha1.ListCost{}
	}
	if estimate == nil {
		estimate = &kubeannexv1alpha1.ListCost{}
	}
	for _, line := range []struct {
		name  string
		value func(*kubeannexv1alpha1.ListCost) string
	}{
		{"Objects", objects},
		{"Scanned", scanned},
		{"Returned", func(c *kubeannexv1alpha1.ListCost) string { return count(c.Returned) }},
		{"Size", size},
		{"Seats", seats},
		{"Time", elapsed},
	} {
		if row := []string{line.name, line.value(estimate), line.value(actual)}; row[1] != absent || row[2] != absent {
			rows = append(rows, row[:len(headings)])
		}
	}
	return headings, rows
}

func count(n *int64) string {
	if n == nil {
		return absent
	}
	return humanize.Comma(*n)
}

// objects is how many there are, unless scanned says so.
func objects(c *kubeannexv1alpha1.ListCost) string {
	if c.Scanned != nil {
		return absent
	}
	return count(c.Total)
}

func scanned(c *kubeannexv1alpha1.ListCost) string {
	if c.Scanned == nil || c.Total == nil {
		return count(c.Scanned)
	}
	return count(c.Scanned) + " of " + count(c.Total)
}

func size(c *kubeannexv1alpha1.ListCost) string {
	if c.Bytes == nil {
		return absent
	}
	return preflight.FormatBytes(*c.Bytes)
}

func seats(c *kubeannexv1alpha1.ListCost) string {
	if c.Seats == nil {
		return absent
	}
	return strconv.FormatInt(*c.Seats, 10)
}

// elapsed is to the millisecond, or finer where that would say little.
func elapsed(c *kubeannexv1alpha1.ListCost) string {
	if c.Duration == nil {
		return absent
	}
	precision := time.Millisecond
	if c.Duration.Duration < 10*time.Millisecond {
		precision = 10 * time.Microsecond
	}
	return c.Duration.Round(precision).String()
}
