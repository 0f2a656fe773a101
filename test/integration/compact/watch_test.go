// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// last is the object whose deletion is the last event. Every selector of a watch takes it.
const last = "zz-last"

// watchAccepts are accepts that a watch takes, and some that it refuses.
func watchAccepts() map[string]string {
	accepted := accepts("PartialObjectMetadata")
	accepted["metadata of a list"] = as(jsonType, "PartialObjectMetadataList", "v1")
	return accepted
}

// watchSelectors are what a watch of gadgets may be narrowed by.
func watchSelectors() map[string]string {
	selected := map[string]string{"no selector": ""}
	for name, label := range map[string]string{"a label": "team=a", "a label excluded": "team!=b", "a label that some have": "team,size!=fat"} {
		selected[name] = "&labelSelector=" + url.QueryEscape(label)
	}
	for name, field := range map[string]string{
		"a field": "spec.color=red", "a field excluded": "spec.color!=blue", "a name": "metadata.name=" + last, "a name and a namespace": "metadata.name=" + last + ",metadata.namespace=" + small,
	} {
		selected[name] = "&fieldSelector=" + url.QueryEscape(field)
	}
	selected["a label and a field"] = selected["a label"] + selected["a field"]
	return selected
}

// watchForms change how events are printed.
func watchForms() map[string]string {
	return map[string]string{
		"as it is": "", "pretty": "&pretty=true", "rows without objects": "&includeObject=None", "rows with metadata": "&includeObject=Metadata", "rows with objects": "&includeObject=Object",
	}
}

// starts say where a watch begins.
func (w *world) starts() map[string]string {
	now, history := fmt.Sprint(w.etcd.Revision()), fmt.Sprint(w.history)
	const initial = "&sendInitialEvents=true&allowWatchBookmarks=true" + notOlder
	return map[string]string{
		"any": "&resourceVersion=0", "newest": "", "now": "&resourceVersion=" + now, "history": "&resourceVersion=" + history,
		"initial events, newest": initial, "initial events, any": initial + "&resourceVersion=0", "initial events, now": initial + "&resourceVersion=" + now,
		"no initial events": "&sendInitialEvents=false" + notOlder + "&resourceVersion=" + now,
	}
}

// pairOfStreams is a watch of both servers.
type pairOfStreams struct {
	request request
	streams map[*side]*stream
}

// stream is a watch that is being read.
type stream struct {
	code   int
	header http.Header
	zipped bool
	// until is the name of the object whose deletion ends what is read.
	until string
	// done is closed when all is read that the test waits for, or the stream has ended.
	done chan struct{}
	body []byte
	err  error
}

// openStream starts a watch and returns when the server has answered. It reads until an object is deleted.
func (s *side) openStream(ctx context.Context, r request, until string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := s.open(ctx, r) //nolint:bodyclose // who reads it closes it
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %s: %w", s.name, r, err)
	}
	opened := &stream{code: response.StatusCode, header: response.Header, until: until, done: make(chan struct{})}
	go func() {
		defer close(opened.done)
		defer cancel()
		defer response.Body.Close()
		opened.err = opened.read(response)
	}()
	return opened, nil
}

func (s *stream) read(response *http.Response) error {
	var packed bytes.Buffer
	chunk := make([]byte, 64<<10)
	for {
		n, err := response.Body.Read(chunk)
		packed.Write(chunk[:n])
		s.body, s.zipped = packed.Bytes(), s.header.Get("Content-Encoding") == "gzip"
		if s.zipped {
			// What is packed is whole after each event and may be cut off in between.
			s.body, _ = unpack(s.body)
		}
		if errors.Is(err, io.EOF) || s.code == http.StatusOK && s.complete() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// complete says whether the last event is the deletion that is waited for, and whole.
func (s *stream) complete() bool {
	all := events(s.header, s.body)
	if len(all) > 0 && len(all[len(all)-1]) == 0 {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return false
	}
	event := all[len(all)-1]
	whole := bytes.HasSuffix(event, []byte("}\n"))
	if strings.HasPrefix(s.header.Get("Content-Type"), protobufType) {
		whole = len(event) >= 4 && len(event) == 4+int(binary.BigEndian.Uint32(event))
	}
	return whole && bytes.Contains(event, []byte("DELETED")) && bytes.Contains(event, []byte(s.until))
}

// watchBoth opens a watch of each server.
func (w *world) watchBoth(t *testing.T, r request, until string) *pairOfStreams {
	t.Helper()
	both := &pairOfStreams{request: r, streams: map[*side]*stream{}}
	for _, s := range w.sides() {
		opened, err := s.openStream(t.Context(), r, until)
		if err != nil {
			t.Error(err)
			return nil
		}
		both.streams[s] = opened
	}
	return both
}

// compare waits for both streams and demands that they are the same.
func (p *pairOfStreams) compare(t *testing.T, w *world) (events int) {
	t.Helper()
	answers := map[*side]answer{}
	for _, s := range w.sides() {
		stream := p.streams[s]
		select {
		case <-stream.done:
		case <-time.After(requestTimeout):
			t.Errorf("%s: %s: the last event does not come", s.name, p.request)
			return 0
		}
		if stream.err != nil {
			t.Errorf("%s: %s: %v after %s", s.name, p.request, stream.err, excerpt(stream.body, len(stream.body)))
		}
		answers[s] = answer{code: stream.code, header: stream.header, zipped: stream.zipped, body: stream.body}
	}
	if diff := differ(answers[w.plain], answers[w.compact]); diff != "" {
		t.Errorf("watch %s\n%s", p.request, diff)
	}
	return bytes.Count(answers[w.plain].body, []byte("ADDED")) + bytes.Count(answers[w.plain].body, []byte("MODIFIED")) + bytes.Count(answers[w.plain].body, []byte("DELETED"))
}

// TestWatch opens watches of every form, then changes objects, and compares what each of them is told.
func TestWatch(t *testing.T) {
	w := shared
	w.mustSettle(t)
	accepted, selected, formed, started, packed := watchAccepts(), watchSelectors(), watchForms(), w.starts(), packings()
	scoped := map[string]string{
		"all gadgets": gadgets("v1", ""), "small namespace": gadgets("v1", small), "all old gadgets": gadgets("v1beta1", ""), "old gadgets of a namespace": gadgets("v1beta1", small),
	}
	bookmarked := map[string]string{"no bookmarks": "", "bookmarks": "&allowWatchBookmarks=true"}
	var requests []request
	for _, c := range pairwise(sortedKeys(accepted), sortedKeys(started), sortedKeys(selected), sortedKeys(scoped), sortedKeys(formed), sortedKeys(packed), sortedKeys(bookmarked)) {
		query := started[c[1]] + selected[c[2]] + formed[c[4]]
		if !strings.Contains(query, "allowWatchBookmarks") {
			query += bookmarked[c[6]]
		}
		requests = append(requests, get(scoped[c[3]]+"?watch=1"+query, "Accept", accepted[c[0]], "Accept-Encoding", packed[c[5]]))
	}
	for _, accept := range sortedKeys(accepted) {
		requests = append(requests, get(planets+"?watch=1&resourceVersion="+fmt.Sprint(w.history), "Accept", accepted[accept]))
	}
	streams := make([]*pairOfStreams, len(requests))
	var opening sync.WaitGroup
	for i, r := range requests {
		opening.Go(func() { streams[i] = w.watchBoth(t, r, last) })
	}
	opening.Wait()
	w.makeHistory(t)
	events := 0
	for _, both := range streams {
		if both != nil {
			events += both.compare(t, w)
		}
	}
	t.Logf("%d watches with %d events are compared", len(requests), events)
}

// makeHistory changes objects in every way that a watch can see, by both servers.
func (w *world) makeHistory(t *testing.T) {
	t.Helper()
	steps := []request{}
	merge := func(path, body string) {
		steps = append(steps, request{method: http.MethodPatch, path: path, body: body, header: map[string]string{"Content-Type": "application/merge-patch+json"}})
	}
	post := func(one document) {
		steps = append(steps, request{method: http.MethodPost, path: one.path, body: one.body})
	}
	remove := func(path string) { steps = append(steps, request{method: http.MethodDelete, path: path}) }
	moving := gadgets("v1", small) + "/moving"
	post(create(gadgets("v1", small), "Gadget", `"metadata":{"name":"moving","labels":{"team":"a"}},"spec":{"color":"red"}`))
	for _, change := range []string{
		`{"metadata":{"labels":{"team":"b"}}}`, `{"spec":{"color":"blue"}}`, `{"metadata":{"labels":{"team":"a"}}}`, `{"spec":{"color":"red"}}`,
		`{"metadata":{"labels":null}}`, `{"spec":null}`, `{"metadata":{"labels":{"team":"a","size":"fat"}},"spec":{"color":"red","note":"<&>\u2028"}}`,
		`{"metadata":{"finalizers":["lab.annex.test/hold"]}}`,
	} {
		merge(moving, change)
	}
	merge(moving+"/status", `{"status":{"size":1}}`)
	remove(moving)
	merge(moving, `{"metadata":{"finalizers":null}}`)
	merge(gadgets("v1beta1", large)+"/fat-0", `{"spec":{"size":3}}`)
	merge(planets+"/unicode", `{"spec":{"more":"é"}}`)
	merge(planets+"/floats", `{"spec":{"a":1e22}}`)
	for _, one := range []document{
		create(gadgets("v1", small), "Gadget", `"metadata":{"name":"`+last+`","labels":{"team":"a"}},"spec":{"color":"red"}`),
		create(planets, "Planet", `"metadata":{"name":"`+last+`"}`),
	} {
		post(one)
	}
	for i, step := range steps {
		if err := w.sides()[i%2].must(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{planets, gadgets("v1", small)} {
		if err := w.compact.must(t.Context(), request{method: http.MethodDelete, path: path + "/" + last}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchEnds compares whole streams that the server ends, and watches that are refused.
func TestWatchEnds(t *testing.T) {
	w := shared
	w.mustSettle(t)
	now, future := fmt.Sprint(w.etcd.Revision()), fmt.Sprint(w.etcd.Revision()+1_000_000)
	queries := map[string]string{
		"nothing happens": "&resourceVersion=" + now, "all there is": "&resourceVersion=0", "newest": "", "history": "&resourceVersion=" + fmt.Sprint(w.history),
		"initial events": "&sendInitialEvents=true&allowWatchBookmarks=true" + notOlder, "initial events without bookmarks": "&sendInitialEvents=true" + notOlder,
		"initial events without a match": "&sendInitialEvents=true&allowWatchBookmarks=true", "initial events, exactly": "&sendInitialEvents=true&resourceVersion=" + now + exact,
		"match without initial events": "&resourceVersion=" + now + notOlder, "too old": "&resourceVersion=1", "the future": "&resourceVersion=" + future,
		"the future with initial events": "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersion=" + future + notOlder,
		"limit":                          "&limit=1&resourceVersion=0", "continue": "&continue=x", "malformed label": "&labelSelector=a%3D%3D,b%20c", "unknown field": "&fieldSelector=spec.unknown%3D1",
		"malformed version": "&resourceVersion=x", "nothing selected": "&fieldSelector=metadata.name%3Dnobody&resourceVersion=0", "one object": "&fieldSelector=metadata.name%3Dg-01&resourceVersion=0",
	}
	accepted := map[string]string{
		"JSON": jsonType, "YAML": yamlType, "table": as(jsonType, "Table", "v1"), "metadata in protobuf": as(protobufType, "PartialObjectMetadata", "v1"), "metadata": as(jsonType, "PartialObjectMetadata", "v1"),
	}
	paths := []string{gadgets("v1", small), gadgets("v1beta1", ""), planets, gadgets("v1", small) + "/g-01"}
	var group sync.WaitGroup
	for _, c := range pairwise(sortedKeys(queries), sortedKeys(accepted), paths, []string{"-", "gzip"}) {
		group.Go(func() {
			w.same(t, get(c[2]+"?watch=true&timeoutSeconds=1"+queries[c[0]], "Accept", accepted[c[1]], "Accept-Encoding", c[3]))
		})
	}
	group.Wait()
	w.same(t, get(gadgets("v1", small)+"?watch=x&timeoutSeconds=1&resourceVersion="+now))
	w.same(t, get(groupPath+"/v1/watch/namespaces/"+small+"/gadgets?timeoutSeconds=1&resourceVersion="+now))
}
