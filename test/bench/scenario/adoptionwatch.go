// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// contentsPage is how many objects are read at a time.
const contentsPage = 2000

// timeline keeps how long an AnnexedGroup was in each phase.
type timeline struct {
	phase v1alpha1.AnnexedGroupPhase
	since time.Time
	order []v1alpha1.AnnexedGroupPhase
	spent map[v1alpha1.AnnexedGroupPhase]time.Duration
	now   func() time.Time
}

var _ follow.Display = &timeline{}

func newTimeline() *timeline {
	return &timeline{spent: map[v1alpha1.AnnexedGroupPhase]time.Duration{}, now: time.Now}
}

// Show implements follow.Display.
func (t *timeline) Show(group *v1alpha1.AnnexedGroup) {
	if group.Status.Phase == t.phase {
		return
	}
	now := t.now()
	t.end(now)
	t.phase, t.since = group.Status.Phase, now
	if _, known := t.spent[t.phase]; !known {
		t.order, t.spent[t.phase] = append(t.order, t.phase), 0
	}
}

// end adds the present phase up.
func (t *timeline) end(now time.Time) {
	if t.phase != "" {
		t.spent[t.phase] += now.Sub(t.since)
	}
	t.phase = ""
}

// Close implements follow.Display.
func (t *timeline) Close() { t.end(t.now()) }

// String lists the phases that were seen; a short one may have been missed.
func (t *timeline) String() string {
	var phases []string
	for _, phase := range t.order {
		phases = append(phases, fmt.Sprintf("%s %.1f s", phase, t.spent[phase].Seconds()))
	}
	return strings.Join(phases, ", ")
}

// contents are all objects of a kind in short.
type contents struct {
	objects int
	// digest is that of names, UIDs and specs, independent of their order.
	digest [sha256.Size]byte
}

// contentsItem is what is looked at of an object.
type contentsItem struct {
	Metadata struct{ Namespace, Name, UID string }
	Spec     json.RawMessage
}

func (c *contents) add(item contentsItem) error {
	var spec bytes.Buffer
	if err := json.Compact(&spec, item.Spec); err != nil {
		return fmt.Errorf("reading the spec of %s: %w", item.Metadata.Name, err)
	}
	metadata := item.Metadata
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s %s %s", metadata.Namespace, metadata.Name, metadata.UID, spec.Bytes()))
	for i := range c.digest {
		c.digest[i] ^= sum[i]
	}
	c.objects++
	return nil
}

// compare returns an error unless nothing but what digest leaves out has changed.
func (c *contents) compare(after contents) error {
	if c.objects != after.objects {
		return fmt.Errorf("there were %d objects, now there are %d", c.objects, after.objects)
	}
	if c.digest != after.digest {
		return fmt.Errorf("names, UIDs or specs of the %d objects have changed", c.objects)
	}
	return nil
}

// readContents reads all endpoints of a side in pages.
func readContents(ctx context.Context, side cluster.Side, want int) (contents, error) {
	var found contents
	with, err := client.New(side.Config)
	if err != nil {
		return found, err
	}
	defer with.Close()
	query := url.Values{"limit": {strconv.Itoa(contentsPage)}}
	for {
		answer, err := with.Get(ctx, side.URL(dataset.Endpoints, dataset.Selection{}, query), false)
		if err != nil {
			return found, err
		}
		var page struct {
			Metadata struct{ Continue string }
			Items    []contentsItem
		}
		if err := json.Unmarshal(answer.Body, &page); err != nil {
			return found, fmt.Errorf("decoding a page of endpoints: %w", err)
		}
		for _, item := range page.Items {
			if err := found.add(item); err != nil {
				return found, err
			}
		}
		if page.Metadata.Continue == "" {
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	if found.objects != want {
		return found, fmt.Errorf("%d endpoints are listed, wanted are %d", found.objects, want)
	}
	return found, nil
}
