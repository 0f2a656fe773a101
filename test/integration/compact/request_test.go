// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// attempts is how often two servers are asked when something is written in between.
	attempts = 20
	// settleTimeout is how long caches may take to hear of the newest revision.
	settleTimeout = 30 * time.Second
)

// request is what both servers are asked. Without a method it is a GET.
type request struct {
	method, path, body string
	// header replaces what is sent by default. The value "-" leaves a header out.
	header map[string]string
}

// get asks for a path with further headers, given as name and value.
func get(path string, header ...string) request {
	r := request{path: path, header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.header[header[i]] = header[i+1]
	}
	return r
}

func (r request) String() string {
	text := r.method + " " + r.path
	if r.method == "" {
		text = "GET" + text
	}
	for _, name := range sortedKeys(r.header) {
		text += fmt.Sprintf(" [%s: %s]", name, r.header[name])
	}
	return text + " " + excerpt([]byte(r.body), 0)
}

// answer is a response that has been read to its end.
type answer struct {
	code   int
	header http.Header
	// body is unpacked if it came packed.
	body   []byte
	zipped bool
	// sent is the length of the body as it came.
	sent int
}

// open sends a request past client-go. The caller closes the body.
func (s *side) open(ctx context.Context, r request) (*http.Response, error) {
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.server.ClientConfig.Host+r.path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		if value == "-" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	return s.client.Do(req)
}

func (s *side) ask(ctx context.Context, r request) (answer, error) {
	response, err := s.open(ctx, r)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %s: reading the answer: %w", s.name, r, err)
	}
	got := answer{code: response.StatusCode, header: response.Header, body: data, sent: len(data)}
	if response.Header.Get("Content-Encoding") == "gzip" {
		got.zipped = true
		got.body, err = unpack(data)
	}
	return got, err
}

func unpack(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpacking %d bytes: %w", len(data), err)
	}
	return io.ReadAll(reader)
}

// must is ask for requests that have to succeed.
func (s *side) must(ctx context.Context, r request) error {
	got, err := s.ask(ctx, r)
	if err != nil {
		return err
	}
	if got.code/100 != 2 {
		return fmt.Errorf("%s: %s: %d %s", s.name, r, got.code, excerpt(got.body, 0))
	}
	return nil
}

// settle waits until every cache of these servers has the newest revision, so that
// lists from the cache agree.
func (w *world) settle(ctx context.Context, sides ...*side) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sides {
		for _, path := range resourcePaths() {
			group.Go(func() error { return w.settleOne(ctx, s, path) })
		}
	}
	return group.Wait()
}

func (w *world) settleOne(ctx context.Context, s *side, path string) error {
	var last answer
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for _, query := range []string{"?limit=1", "?limit=1&resourceVersion=0"} {
			var err error
			if last, err = s.ask(ctx, get(path+query)); err != nil || last.code != http.StatusOK {
				return false, nil
			}
		}
		return listVersion(last.body) == w.etcd.Revision(), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the cache of %s in the %s server: %w, last answer: %d %s", path, s.name, err, last.code, excerpt(last.body, 0))
	}
	return nil
}

func (w *world) mustSettle(t *testing.T) {
	t.Helper()
	if err := w.settle(t.Context(), w.sides()...); err != nil {
		t.Fatal(err)
	}
}

// awaitServed waits until both servers list a kind from their caches.
func (w *world) awaitServed(t *testing.T, list string) {
	t.Helper()
	for _, s := range w.sides() {
		err := wait.PollUntilContextCancel(t.Context(), pollInterval, true, func(ctx context.Context) (bool, error) {
			got, err := s.ask(ctx, get(list+"?resourceVersion=0"))
			return got.code == http.StatusOK, err
		})
		if err != nil {
			t.Fatalf("waiting until the %s server has %s: %v", s.name, list, err)
		}
	}
}

// maxWatch is how long a watch is given, in seconds, on a machine that is busy.
const maxWatch = 16

var timeout = regexp.MustCompile(`timeoutSeconds=(\d+)`)

// longer is the same watch for twice the time, if one of the servers had no time to send what the other has sent.
func (r request) longer(plain, compact answer) (request, bool) {
	seconds := timeout.FindStringSubmatch(r.path)
	if seconds == nil || plain.code != http.StatusOK || compact.code != http.StatusOK || len(plain.body) == len(compact.body) {
		return r, false
	}
	begins := bytes.HasPrefix(plain.body, compact.body) || bytes.HasPrefix(compact.body, plain.body)
	n, err := strconv.Atoi(seconds[1])
	if !begins || err != nil || n >= maxWatch {
		return r, false
	}
	r.path = timeout.ReplaceAllString(r.path, fmt.Sprintf("timeoutSeconds=%d", 2*n))
	return r, true
}

// listVersion is the resourceVersion of a list in JSON, 0 when it has none.
func listVersion(body []byte) int64 {
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0
	}
	version, err := strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// same asks both servers and demands the same answer, which it returns. When something
// was written in between, it asks again.
func (w *world) same(t *testing.T, r request) answer {
	t.Helper()
	for range attempts {
		before := w.etcd.Revision()
		var answers [2]answer
		var errs [2]error
		var asking sync.WaitGroup
		for i, s := range w.sides() {
			asking.Go(func() { answers[i], errs[i] = s.ask(t.Context(), r) })
		}
		asking.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("%s: %v", r, err)
			return answer{}
		}
		if w.etcd.Revision() != before {
			continue
		}
		if longer, ok := r.longer(answers[0], answers[1]); ok {
			r = longer
			continue
		}
		if diff := differ(answers[0], answers[1]); diff != "" {
			t.Errorf("%s\n%s", r, diff)
		}
		return answers[0]
	}
	t.Errorf("%s: something is written all the time", r)
	return answer{}
}

var (
	// age is a cell of a table that tells how long ago something was.
	age = regexp.MustCompile(`(?m)("|- )(\d+[ydhms]){1,2}("|$)`)
	// columns are those of a table in a watch, which are sent again after a bookmark of progress.
	columns = regexp.MustCompile(`("object":\{"kind":"Table",.*?"columnDefinitions":)(?:null|\[.*?\]),"rows"`)
	// oldest is the first revision that a cache knows.
	oldest = regexp.MustCompile(`(too old resource version: \d+) \(\d+\)`)
)

// differ compares two answers. It is empty when they agree.
func differ(plain, compact answer) string {
	var text string
	if plain.code != compact.code {
		text += fmt.Sprintf("  code: plain %d, compact %d\n", plain.code, compact.code)
	}
	if plain.zipped != compact.zipped {
		text += fmt.Sprintf("  zipped: plain %t, compact %t\n", plain.zipped, compact.zipped)
	}
	hasAges := bytes.Contains(plain.body, []byte("columnDefinitions"))
	if diff := cmp.Diff(withoutOwn(plain.header, hasAges), withoutOwn(compact.header, hasAges)); diff != "" {
		text += fmt.Sprintf("  header (-plain +compact):\n%s", diff)
	}
	return text + differBytes(plain.timeless(hasAges), compact.timeless(hasAges))
}

// timeless is the body without what depends on the time at which something was done.
func (a answer) timeless(hasAges bool) []byte {
	body := oldest.ReplaceAll(a.body, []byte("$1 (OLDEST)"))
	if hasAges {
		body = columns.ReplaceAll(age.ReplaceAll(body, []byte("${1}AGE$3")), []byte(`$1 COLUMNS,"rows"`))
	}
	if !bytes.Contains(body, []byte("BOOKMARK")) {
		return body
	}
	// A cache tells of its progress once a second or once a minute.
	var all []byte
	for _, event := range events(a.header, body) {
		if !bytes.Contains(event, []byte("BOOKMARK")) || bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			all = append(all, event...)
		}
	}
	return all
}

// events cuts the body of a watch. The last one may be cut off.
func events(header http.Header, body []byte) [][]byte {
	if !strings.HasPrefix(header.Get("Content-Type"), protobufType) {
		return bytes.SplitAfter(body, []byte("\n"))
	}
	var all [][]byte
	for len(body) > 0 {
		end := len(body)
		if end >= 4 {
			end = min(end, 4+int(binary.BigEndian.Uint32(body)))
		}
		all = append(all, body[:end])
		body = body[end:]
	}
	return all
}

// withoutOwn leaves out what every answer has of its own.
func withoutOwn(header http.Header, hasAges bool) http.Header {
	header = maps.Clone(header)
	header.Del("Date")
	header.Del("Audit-Id")
	if hasAges || header.Get("Content-Encoding") != "" {
		header.Del("Content-Length")
	}
	return header
}

// differBytes shows where two texts begin to differ. It is empty when they agree.
func differBytes(plain, compact []byte) string {
	if bytes.Equal(plain, compact) {
		return ""
	}
	at := 0
	for at < len(plain) && at < len(compact) && plain[at] == compact[at] {
		at++
	}
	return fmt.Sprintf("  body: plain has %d bytes, compact %d, they differ at %d:\n    plain:   %s\n    compact: %s\n",
		len(plain), len(compact), at, excerpt(plain, at), excerpt(compact, at))
}

// excerpt is a part of a text around a place.
func excerpt(text []byte, at int) string {
	const around = 300
	from, to := max(0, at-around), min(len(text), at+around)
	if from >= to {
		return ""
	}
	return fmt.Sprintf("%q", text[from:to])
}
