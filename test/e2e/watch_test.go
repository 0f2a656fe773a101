// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/kubeannex/annex/test/env"
)

// The first and the last object that a watch shows. Both match every selector
// of TestWatch: the first shows that the watch has begun, the last that it has
// shown everything before.
const (
	beginName = "aa-begin"
	endName   = "zz-end"
)

// TestWatch compares what "kubectl get -w" prints while objects change.
func TestWatch(t *testing.T) {
	for name, flags := range map[string]string{
		"all":             "",
		"wide":            "-o wide",
		"events":          "--output-watch-events",
		"names":           "-o name",
		"label":           "-l team=a --output-watch-events",
		"field":           "--field-selector=spec.color=red --output-watch-events",
		"label-and-field": "-l team=a --field-selector=spec.color=red --output-watch-events",
		"older-version":   "--output-watch-events -o wide --v1beta1",
	} {
		t.Run(name, func(t *testing.T) {
			resource := "gdg"
			if rest, ok := strings.CutSuffix(flags, "--v1beta1"); ok {
				resource, flags = "gadgets.v1beta1.lab.annex.test", rest
			}
			judge, annexed := sides(t, "watch-"+name)
			ctx := testContext(t)
			var want, got []string
			group, groupCtx := errgroup.WithContext(ctx)
			group.Go(func() (err error) { want, err = judge.watch(groupCtx, resource, flags); return err })
			group.Go(func() (err error) { got, err = annexed.watch(groupCtx, resource, flags); return err })
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("judge (-) and annex (+) differ:\n%s", diff)
			}
			if len(want) < 4 {
				t.Errorf("the judge shows no changes: %q", want)
			}
		})
	}
}

// watch returns the lines that kubectl prints from the first object to the last.
func (s side) watch(ctx context.Context, resource, flags string) ([]string, error) {
	begin := labelled("{name: "+beginName+", labels: {team: a}}", "{color: red}")
	if err := s.script(ctx, []step{{run: "create -f -", stdin: begin}}); err != nil {
		return nil, err
	}
	args := append([]string{"get", resource, "--watch"}, strings.Fields(flags)...)
	stream, err := s.kubectl.Stream(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	before, err := linesUntil(ctx, stream, beginName)
	if err != nil {
		return nil, err
	}
	if err := s.script(ctx, changes()); err != nil {
		return nil, err
	}
	after, err := linesUntil(ctx, stream, endName)
	return append(before, after...), err
}

// changes moves objects into and out of every selection of TestWatch.
func changes() []step {
	one := "{name: one, labels: {team: a}}"
	return []step{
		{run: "create -f -", stdin: labelled(one, "{color: red, size: 1}")},
		{run: `patch gdg one --type=merge -p={"spec":{"size":2}}`},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"blue"}}`},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"red"}}`},
		{run: "label gdg one team=b --overwrite"},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"green"}}`},
		{run: "label gdg one team=a --overwrite"},
		{run: `patch gdg one --subresource=status --type=merge -p={"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"red"}}`},
		{run: "create -f -", stdin: labelled("{name: other, labels: {team: b}}", "{color: blue}")},
		{run: "delete gdg one other"},
		{run: "create -f -", stdin: labelled("{name: "+endName+", labels: {team: a}}", "{color: red}")},
	}
}

// script runs steps that must succeed.
func (s side) script(ctx context.Context, steps []step) error {
	for _, step := range steps {
		result, err := s.run(ctx, step)
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return &stepError{side: s.name, run: step.run, result: result}
		}
	}
	return nil
}

type stepError struct {
	side, run string
	result    env.Result
}

func (e *stepError) Error() string {
	return "kubectl " + e.run + " fails on the side of the " + e.side + ": " + e.result.Stderr
}

func linesUntil(ctx context.Context, stream *env.Stream, part string) ([]string, error) {
	var lines []string
	for {
		line, err := stream.Next(ctx)
		if err != nil {
			return lines, err
		}
		lines = append(lines, normalizeText(line))
		if strings.Contains(line, part) {
			return lines, nil
		}
	}
}

// page is what matters of one page of a list.
type page struct {
	Names     []string
	Remaining *int64
	Last      bool
}

// TestPages follows continue tokens to the end of lists.
func TestPages(t *testing.T) {
	judge, annexed := sides(t, "pages")
	ctx := testContext(t)
	create := []step{{run: "create -f -", stdin: seed(t, 23)}}
	for _, s := range []side{judge, annexed} {
		if err := s.script(ctx, create); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		query     string
		wantPages int
	}{
		"no selector":    {query: "limit=5", wantPages: 5},
		"exact page":     {query: "limit=23", wantPages: 1},
		"label":          {query: "limit=5&labelSelector=team%3Da", wantPages: 3},
		"field":          {query: "limit=2&fieldSelector=spec.color%3Dred", wantPages: 4},
		"field and none": {query: "limit=2&fieldSelector=spec.color%3Dpink", wantPages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := judge.pages(ctx, tc.query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := annexed.pages(ctx, tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("judge (-) and annex (+) differ:\n%s", diff)
			}
			if len(want) != tc.wantPages {
				t.Errorf("the judge gives %d pages, want %d", len(want), tc.wantPages)
			}
		})
	}
}

func (s side) pages(ctx context.Context, query string) ([]page, error) {
	const path = "/apis/lab.annex.test/v1/namespaces/pages/gadgets?"
	var pages []page
	for token := ""; ; {
		result, err := s.run(ctx, step{run: "get --raw " + path + query + "&continue=" + url.QueryEscape(token)})
		if err != nil {
			return nil, err
		}
		if result.ExitCode != 0 {
			return nil, &stepError{side: s.name, run: query, result: result}
		}
		var list struct {
			Metadata struct {
				Continue           string
				RemainingItemCount *int64
			}
			Items []struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(result.Stdout), &list); err != nil {
			return nil, err
		}
		token = list.Metadata.Continue
		current := page{Remaining: list.Metadata.RemainingItemCount, Last: token == ""}
		for _, item := range list.Items {
			current.Names = append(current.Names, item.Metadata.Name)
		}
		if pages = append(pages, current); current.Last {
			return pages, nil
		}
	}
}
